// Stub: the element types that convolutions do not have.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

struct fp8_t {
    uint8_t data;
};
struct bf8_t {
    uint8_t data;
};
using int8_t = ::int8_t;
using int32_t = ::int32_t;

}  // namespace ck_tile
