// Stub: a convolution's compile-time choices, and its arguments on the host.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/host.hpp"

namespace ck_tile {

using PassThrough = element_wise::PassThrough;

template <typename InPtr, typename WeiPtr, typename OutPtr, typename CDElementwise>
struct GroupedConvHostArgs : conv::ConvParam {
    GroupedConvHostArgs() = delete;
    CK_TILE_HOST GroupedConvHostArgs(ConvParam conv_param, InPtr, WeiPtr, const std::vector<const void*>, OutPtr,
                                     index_t, CDElementwise = CDElementwise{})
        : ConvParam(conv_param) {}
};

template <typename CDElementwise = PassThrough>
using GroupedConvFwdHostArgs = GroupedConvHostArgs<const void*, const void*, void*, CDElementwise>;
using GroupedConvBwdWeightHostArgs = GroupedConvHostArgs<const void*, void*, const void*, PassThrough>;
using GroupedConvBwdDataHostArgs = GroupedConvHostArgs<void*, const void*, const void*, PassThrough>;

template <index_t NDimSpatial_,
          ConvolutionSpecialization ConvSpecialization_,
          typename InLayout_,
          typename WeiLayout_,
          typename DsLayout_,
          typename OutLayout_,
          index_t VectorSizeA_ = 1,
          index_t VectorSizeB_ = 1,
          index_t VectorSizeC_ = 1,
          index_t NumGroupsToMerge_ = 1,
          bool EnableSplitImage_ = false,
          bool ExplicitGemm_ = false,
          typename DepthwiseTraitsType_ = void>
struct GroupedConvTraits {
    struct FixedGemmParams {
        static constexpr index_t TilePartitionerGroupNum = 8;
        static constexpr index_t TilePartitionerM01 = 4;
        static constexpr bool kPadM = true;
        static constexpr bool kPadN = true;
        static constexpr bool kPadK = true;
        static constexpr bool TransposeC = false;
        static constexpr bool FixedVectorSize = true;
        static constexpr bool UseStructuredSparsity = false;
        static constexpr bool Persistent = false;
        using ELayout = tensor_layout::gemm::RowMajor;
    };
    using Row = tensor_layout::gemm::RowMajor;
    using Column = tensor_layout::gemm::ColumnMajor;
    using AsLayoutFwd = std::conditional_t<NumGroupsToMerge_ == 1, Row, Column>;
    using BsLayoutFwd = Column;
    using CLayoutFwd = Row;
    using AsLayoutBwdData = Row;
    using BsLayoutBwdData = Row;
    using CLayoutBwdData = Row;
    using AsLayoutBwdWeight = Column;
    using BsLayoutBwdWeight = Row;
    using CLayoutBwdWeight = Row;

    using InLayout = InLayout_;
    using WeiLayout = WeiLayout_;
    using OutLayout = OutLayout_;
    using ImplicitGemmDsLayout = tuple<>;
    static constexpr index_t NDimSpatial = NDimSpatial_;
    static constexpr auto ConvSpecialization = ConvSpecialization_;
    static constexpr index_t VectorSizeA = VectorSizeA_;
    static constexpr index_t VectorSizeB = VectorSizeB_;
    static constexpr index_t VectorSizeC = VectorSizeC_;
    static constexpr index_t NumGroupsToMerge = NumGroupsToMerge_;
    static constexpr bool EnableSplitImage = EnableSplitImage_;
    static constexpr bool ExplicitGemm = ExplicitGemm_;
    static_assert(DsLayout_::size() == 0 && std::is_void_v<DepthwiseTraitsType_>);
};

// What the stubs of the three kernels share. The published kernels assert the paddings and layouts; that the parts of a
// kernel agree on widths and tiles is asserted here only, so that arguments in the wrong order fail.
template <typename Traits, typename Partitioner, typename Pipeline, typename Epilogue>
struct StubKernel {
    static constexpr index_t kBlockSize = Pipeline::BlockSize;
    using Problem = typename Epilogue::Problem;
    using Shape = typename Pipeline::BlockGemmShape;
    using Waves = typename Shape::BlockWarps;
    using WarpTile = typename Shape::WarpTile;
    static_assert(Pipeline::kPadM && Pipeline::kPadN && Pipeline::kPadK, "Not supported!");
    static_assert(!Traits::ExplicitGemm || Traits::NumGroupsToMerge == 1, "Not supported!");
    static_assert(Pipeline::Problem::VectorSizeA == Traits::VectorSizeA);
    static_assert(Pipeline::Problem::VectorSizeB == Traits::VectorSizeB);
    static_assert(Problem::VectorSizeC == Traits::VectorSizeC);
    static_assert(std::is_same_v<typename Problem::Tile, sequence<Partitioner::MPerBlock, Partitioner::NPerBlock>>);
    static_assert(std::is_same_v<typename Problem::Waves, sequence<Waves::at(number<0>{}), Waves::at(number<1>{})>>);
    static_assert(std::is_same_v<typename Problem::WarpTile, WarpTile>);
    static_assert(Problem::DoubleSmemBuffer == Pipeline::Problem::Traits::DoubleSmemBuffer);
    static_assert(Problem::kNumWaveGroups == Pipeline::Problem::Traits::NumWaveGroups);
    static_assert(std::is_same_v<typename Problem::AccDataType, typename Pipeline::CDataType>);
    static_assert(std::is_same_v<typename Problem::ELayout, tensor_layout::gemm::RowMajor>);
    static_assert(!Problem::isCTransposed && std::is_empty_v<typename Epilogue::CDElementwise>);

    CK_TILE_HOST static auto BlockSize() { return dim3(kBlockSize); }
    CK_TILE_DEVICE static void RunGemm() {
        __shared__ char smem[Pipeline::GetSmemSize() + Epilogue::GetSmemSize()];
        const auto c_block_tile = Pipeline{}.template operator()(TileWindow{}, TileWindow{}, index_t{1}, smem);
        Epilogue{}(static_cast<typename Epilogue::ODataType*>(nullptr), c_block_tile, smem);
    }
};

}  // namespace ck_tile
