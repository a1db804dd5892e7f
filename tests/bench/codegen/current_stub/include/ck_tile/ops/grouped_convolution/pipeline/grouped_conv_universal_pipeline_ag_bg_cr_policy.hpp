// Stub.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

struct GroupedConvUniversalPipelineAgBgCrPolicy {};

}  // namespace ck_tile
