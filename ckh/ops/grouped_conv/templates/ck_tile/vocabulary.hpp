// The vocabulary of a kernel's parameters, and CK Tile. The emitted translation unit includes this first, then states
// its own parameters as constants of namespace ckh::kernel, then includes the header of its interface.
#pragma once

#include <hip/hip_runtime.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "ck_tile/core.hpp"
#include "ck_tile/host.hpp"
#include "ck_tile/ops/epilogue.hpp"
#include "ck_tile/ops/gemm.hpp"
#include "ck_tile/ops/grouped_convolution.hpp"
#include "problem.hpp"

namespace ckh {

enum class Variant { forward, bwd_data, bwd_weight };
enum class Pipeline { basic_v1, mem, compv3, compv4, compv5, compv6, comp_async, basic_async_v1 };

}  // namespace ckh
