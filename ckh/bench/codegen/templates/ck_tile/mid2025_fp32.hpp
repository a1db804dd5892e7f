// Matrix instructions on fp32, which CK Tile of mid-2025 has no warp GEMM for: v_mfma_f32_32x32x2f32 and
// v_mfma_f32_16x16x4f32, made into CK Tile's warp GEMMs of any multiple of their K.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/gemm.hpp"

namespace ckh {

// Lanes hold A as M x K in one value each, and C as rows of four: lane groups x blocks of rows x four rows.
template <ck_tile::index_t M>
struct Fp32Instruction {
    static_assert(M == 16 || M == 32, "there are 16x16 and 32x32 instructions");
    static constexpr auto Ctrl = ck_tile::WGAttrCtlEnum::Default_;

    using ADataType = float;
    using BDataType = float;
    using CDataType = float;
    using AVecType = ck_tile::ext_vector_t<float, 1>;
    using BVecType = ck_tile::ext_vector_t<float, 1>;
    using CVecType = ck_tile::ext_vector_t<float, M * M / 64>;

    static constexpr ck_tile::index_t kM = M;
    static constexpr ck_tile::index_t kN = M;
    static constexpr ck_tile::index_t kK = 64 / M;

    static constexpr ck_tile::index_t kAMBlock = 1;
    static constexpr ck_tile::index_t kBNBlock = 1;
    static constexpr ck_tile::index_t kAMLane = M;
    static constexpr ck_tile::index_t kBNLane = M;
    static constexpr ck_tile::index_t kABKLane = 64 / M;
    static constexpr ck_tile::index_t kABKPerLane = 1;

    static constexpr ck_tile::index_t kCMLane = 64 / M;
    static constexpr ck_tile::index_t kCNLane = M;
    static constexpr ck_tile::index_t kCM0PerLane = M == 32 ? 4 : 1;
    static constexpr ck_tile::index_t kCM1PerLane = 4;

    template <bool PostNop = false>
    CK_TILE_DEVICE void operator()(CVecType& c, const AVecType& a, const BVecType& b,
                                   ck_tile::bool_constant<PostNop> = {}) const {
#if defined(__gfx9__)
        if constexpr (M == 32) {
            c = __builtin_amdgcn_mfma_f32_32x32x2f32(a[0], b[0], c, 0, 0, 0);
        } else {
            c = __builtin_amdgcn_mfma_f32_16x16x4f32(a[0], b[0], c, 0, 0, 0);
        }
#else
        ck_tile::ignore = a;
        ck_tile::ignore = b;
        ck_tile::ignore = c;
#endif
    }

    CK_TILE_DEVICE CVecType operator()(const AVecType& a, const BVecType& b) const {
        CVecType c{0.f};
        (*this)(c, a, b);
        return c;
    }
};

}  // namespace ckh

namespace ck_tile::impl {

template <index_t M, index_t K>
struct WarpGemmMfmaDispatcher<float, float, float, M, M, K, false> {
    using Instruction = ckh::Fp32Instruction<M>;
    static_assert(K % Instruction::kK == 0, "K of a warp tile must be a multiple of the instruction's");
    using Type = WarpGemmImpl<WarpGemmAtrributeMfmaIterateK<Instruction, K / Instruction::kK>>;
};

}  // namespace ck_tile::impl
