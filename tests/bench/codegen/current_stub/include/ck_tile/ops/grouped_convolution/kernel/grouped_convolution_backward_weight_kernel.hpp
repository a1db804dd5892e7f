// Stub: the backward weight kernel.
#pragma once

#include "ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp"

namespace ck_tile {

template <typename GroupedConvTraitsType_>
struct GroupedConvBwdWeightKernelArgs {
    CK_TILE_HOST explicit GroupedConvBwdWeightKernelArgs(const GroupedConvBwdWeightHostArgs&) {}
};

template <typename GroupedConvTraitsType_,
          typename TilePartitioner_,
          typename GemmPipeline_,
          typename EpiloguePipeline_>
struct GroupedConvolutionBackwardWeightKernel
    : StubKernel<GroupedConvTraitsType_, TilePartitioner_, GemmPipeline_, EpiloguePipeline_> {
    using KernelArgs = GroupedConvBwdWeightKernelArgs<GroupedConvTraitsType_>;
    static constexpr bool LargeTensors = GemmPipeline_::LargeTensors;
    static_assert(std::is_same_v<typename GemmPipeline_::ALayout, tensor_layout::gemm::ColumnMajor>);
    static_assert(std::is_same_v<typename GemmPipeline_::BLayout, tensor_layout::gemm::RowMajor>, "Not supported!");
    static_assert(std::is_same_v<typename GemmPipeline_::CLayout, tensor_layout::gemm::RowMajor>, "Not supported!");

    CK_TILE_HOST static auto GridSize(const KernelArgs&) { return dim3(1); }
    CK_TILE_HOST static KernelArgs MakeKernelArgs(const GroupedConvBwdWeightHostArgs& hostArgs, int = 0, int = 0) {
        return KernelArgs(hostArgs);
    }
    CK_TILE_HOST static bool IsSupportedArgument(const KernelArgs&) { return !GemmPipeline_::Async; }
    CK_TILE_DEVICE void operator()(KernelArgs&) const { this->RunGemm(); }
};

}  // namespace ck_tile
