// The epilogue of a plain matrix product: no further tensors, and no function.
#pragma once

#include "gemm_types.hpp"

namespace ckh {

using Ds = ck_tile::tuple<>;
using DLayouts = ck_tile::tuple<>;
using Elementwise = PassThrough;

}  // namespace ckh
