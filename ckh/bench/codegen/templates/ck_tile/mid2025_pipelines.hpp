// The pipelines of CK Tile's interface of mid-2025, in which operands are transposed with the policy's own vector width only.
#pragma once

namespace ckh {

template <class Policy>
using LoadPolicy = Policy;

}  // namespace ckh

#include "looped_pipelines.hpp"
