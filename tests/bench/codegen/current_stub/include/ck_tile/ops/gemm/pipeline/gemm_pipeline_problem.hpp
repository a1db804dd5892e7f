// Stub: what a pipeline works on, and the policy that its widths come from. Neither its main loop nor its tail is a
// parameter.
#pragma once

#include "ck_tile/core/element_types.hpp"

namespace ck_tile {

template <typename BlockTile_, typename BlockWarps_, typename WarpTile_, bool PermuteA_ = false, bool PermuteB_ = false>
struct TileGemmShape {
    using BlockTile = BlockTile_;
    using BlockWarps = BlockWarps_;
    using WarpTile = WarpTile_;
    static constexpr index_t NumWarps =
        BlockWarps::at(number<0>{}) * BlockWarps::at(number<1>{}) * BlockWarps::at(number<2>{});
    static constexpr index_t kM = BlockTile::at(number<0>{});
    static constexpr index_t kN = BlockTile::at(number<1>{});
    static constexpr index_t kK = BlockTile::at(number<2>{});
};

template <typename AsDataType_,
          typename BsDataType_,
          typename EDataType_,
          typename BlockGemmShape_,
          typename Traits_,
          GemmPipelineScheduler Scheduler_ = GemmPipelineScheduler::Intrawave,
          typename AElementWise_ = element_wise::PassThrough,
          typename BElementWise_ = element_wise::PassThrough,
          typename AComputeDataType_ = AsDataType_,
          typename BComputeDataType_ = BsDataType_,
          bool FixedVectorSize_ = false,
          index_t VectorSizeA_ = 1,
          index_t VectorSizeB_ = 1>
struct UniversalGemmPipelineProblem {
    using Traits = Traits_;
    using ADataType = AsDataType_;
    using BDataType = BsDataType_;
    using CDataType = EDataType_;
    using BlockGemmShape = BlockGemmShape_;
    using ALayout = typename Traits::AsLayout;
    using BLayout = typename Traits::BsLayout;
    using CLayout = typename Traits::CLayout;
    using AElementWise = AElementWise_;
    using BElementWise = BElementWise_;
    static constexpr auto Scheduler = Scheduler_;
    static constexpr index_t kBlockSize = BlockGemmShape::NumWarps * get_warp_size();
    static constexpr bool FixedVectorSize = FixedVectorSize_;
    static constexpr index_t VectorSizeA = VectorSizeA_;
    static constexpr index_t VectorSizeB = VectorSizeB_;
    static_assert(std::is_empty_v<AElementWise> && std::is_empty_v<BElementWise>);
    static_assert(std::is_same_v<AComputeDataType_, ADataType> && std::is_same_v<BComputeDataType_, BDataType>);
};

// Loads are of 16 bytes, which is what the tiles of the tests give.
struct UniversalGemmPipelineAgBgCrPolicy {
    template <typename Problem, bool IsWave32Host = false>
    CK_TILE_HOST_DEVICE static constexpr index_t GetVectorSizeA() {
        if constexpr (Problem::FixedVectorSize) return Problem::VectorSizeA;
        return 16 / sizeof(typename Problem::ADataType);
    }
    template <typename Problem, bool IsWave32Host = false>
    CK_TILE_HOST_DEVICE static constexpr index_t GetVectorSizeB() {
        if constexpr (Problem::FixedVectorSize) return Problem::VectorSizeB;
        return 16 / sizeof(typename Problem::BDataType);
    }
};

// What the stubs of all pipelines share; published, each pipeline states these itself.
template <typename Problem_, typename Policy_>
struct StubPipeline {
    using Problem = Problem_;
    using ADataType = typename Problem::ADataType;
    using BDataType = typename Problem::BDataType;
    using CDataType = typename Problem::CDataType;
    using AsDataType = tuple<ADataType>;
    using BsDataType = tuple<BDataType>;
    using AsLayout = tuple<typename Problem::ALayout>;
    using BsLayout = tuple<typename Problem::BLayout>;
    using AElementWise = typename Problem::AElementWise;
    using BElementWise = typename Problem::BElementWise;
    using ALayout = typename Problem::ALayout;
    using BLayout = typename Problem::BLayout;
    using CLayout = typename Problem::CLayout;
    using BlockGemmShape = typename Problem::BlockGemmShape;
    static constexpr index_t BlockSize = Problem::kBlockSize;
    static constexpr bool kPadM = Problem::Traits::kPadM;
    static constexpr bool kPadN = Problem::Traits::kPadN;
    static constexpr bool kPadK = Problem::Traits::kPadK;
    static constexpr auto Scheduler = Problem::Scheduler;

    // Convolutions hand over windows, GEMMs element-wise functions too.
    template <typename AWindow, typename BWindow>
    CK_TILE_DEVICE auto operator()(const AWindow&, const BWindow&, index_t, void*) const {
        return BlockTile{};
    }
    template <typename AWindow, typename BWindow>
    CK_TILE_DEVICE auto operator()(const AWindow&, const AElementWise&, const BWindow&, const BElementWise&, index_t,
                                   void*) const {
        return BlockTile{};
    }
    CK_TILE_HOST_DEVICE static constexpr index_t GetSmemSize() { return 1; }
};

}  // namespace ck_tile
