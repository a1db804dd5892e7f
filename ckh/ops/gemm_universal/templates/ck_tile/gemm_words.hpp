// CK Tile, and the words of the parameters of GEMM kernels of every operation.
#pragma once

#include <hip/hip_runtime.h>

#include "ck_tile/core.hpp"
#include "ck_tile/host.hpp"
#include "ck_tile/ops/epilogue.hpp"
#include "ck_tile/ops/gemm.hpp"

namespace ckh {

enum class Pipeline { basic_v1, mem, compv3, compv4, compv5, compv6, comp_async };
enum class Epilogue { cshuffle, direct };

using RowMajor = ck_tile::tensor_layout::gemm::RowMajor;
using ColumnMajor = ck_tile::tensor_layout::gemm::ColumnMajor;

}  // namespace ckh
