// Stub: the forward kernel.
#pragma once

#include "ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp"

namespace ck_tile {

template <typename GroupedConvTraitsType_>
struct GroupedConvFwdKernelArgs {
    CK_TILE_HOST explicit GroupedConvFwdKernelArgs(const GroupedConvFwdHostArgs<PassThrough>&) {}
    struct SplitImageInfo {
        struct PieceInfo {
            index_t block_start = -1;
        };
        PieceInfo pieces[64];
    };
    SplitImageInfo split_image;
};

template <typename GroupedConvTraitsType_,
          typename TilePartitioner_,
          typename GemmPipeline_,
          typename EpiloguePipeline_>
struct GroupedConvolutionForwardKernel
    : StubKernel<GroupedConvTraitsType_, TilePartitioner_, GemmPipeline_, EpiloguePipeline_> {
    using KernelArgs = GroupedConvFwdKernelArgs<GroupedConvTraitsType_>;
    static constexpr bool LargeTensors = GemmPipeline_::LargeTensors;
    static_assert(std::is_same_v<typename GemmPipeline_::ALayout, tensor_layout::gemm::RowMajor> ||
                      GroupedConvTraitsType_::NumGroupsToMerge > 1,
                  "Not supported!");
    static_assert(std::is_same_v<typename GemmPipeline_::BLayout, tensor_layout::gemm::ColumnMajor>, "Not supported!");
    static_assert(std::is_same_v<typename GemmPipeline_::CLayout, tensor_layout::gemm::RowMajor>, "Not supported!");

    CK_TILE_HOST static auto GridSize(const KernelArgs&) { return dim3(1); }
    CK_TILE_HOST static KernelArgs MakeKernelArgs(const GroupedConvFwdHostArgs<PassThrough>& hostArgs) {
        auto kargs = KernelArgs(hostArgs);
        if constexpr (GroupedConvTraitsType_::EnableSplitImage) kargs.split_image.pieces[0].block_start = 0;
        return kargs;
    }
    CK_TILE_HOST static bool IsSupportedArgument(const KernelArgs&) { return !GemmPipeline_::Async; }
    CK_TILE_DEVICE void operator()(KernelArgs&) const { this->RunGemm(); }
};

}  // namespace ck_tile
