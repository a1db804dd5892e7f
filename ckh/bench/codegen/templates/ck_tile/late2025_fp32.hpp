// Warp GEMMs on fp32 of any K, made of CK Tile's own instructions: its dispatcher of late 2025 has few of them. Those
// that it has are full specializations, which a compiler prefers to these. Its name differs from tree to tree, so that it
// is stated when a kernel is compiled.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/gemm.hpp"

namespace ck_tile::impl {

template <index_t M>
using Fp32Instruction = std::conditional_t<M == 16, WarpGemmAttributeMfmaImplF32F32F32M16N16K4<WGAttrCtlEnum::Default_>,
                                           WarpGemmAttributeMfmaImplF32F32F32M32N32K2<WGAttrCtlEnum::Default_>>;

template <index_t M, index_t K>
struct CKH_WARP_GEMM_DISPATCHER<float, float, float, M, M, K, false> {
    using Instruction = Fp32Instruction<M>;
    static_assert(M == Instruction::kM && K % Instruction::kK == 0, "there are 16x16x4 and 32x32x2 instructions");
    using Type = WarpGemmImpl<WarpGemmAttributeMfmaIterateK<Instruction, K / Instruction::kK>>;
};

}  // namespace ck_tile::impl
