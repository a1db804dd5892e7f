// CK Tile's kernel of a matrix product. GemmKernel only wraps this class, and counts the blocks of a persistent kernel by
// compiling the kernel once more.
#pragma once

#include "gemm_types.hpp"

namespace ckh {

template <class... Parts>
using KernelOf = ck_tile::UniversalGemmKernel<Parts...>;

}  // namespace ckh
