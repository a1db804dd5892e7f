// Stub: the backward data kernel.
#pragma once

#include "ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp"

namespace ck_tile {

template <typename GroupedConvTraitsType_>
struct GroupedConvBwdDataKernelArgs {
    CK_TILE_HOST explicit GroupedConvBwdDataKernelArgs(const GroupedConvBwdDataHostArgs&) {}
};

template <typename GroupedConvTraitsType_,
          typename TilePartitioner_,
          typename GemmPipeline_,
          typename EpiloguePipeline_>
struct GroupedConvolutionBackwardDataKernel
    : StubKernel<GroupedConvTraitsType_, TilePartitioner_, GemmPipeline_, EpiloguePipeline_> {
    using KernelArgs = GroupedConvBwdDataKernelArgs<GroupedConvTraitsType_>;
    static constexpr bool LargeTensors = GemmPipeline_::LargeTensors;
    static_assert(std::is_same_v<typename GemmPipeline_::ALayout, tensor_layout::gemm::RowMajor>, "Not supported!");
    static_assert(std::is_same_v<typename GemmPipeline_::BLayout, tensor_layout::gemm::RowMajor>, "Not supported!");
    static_assert(GroupedConvTraitsType_::ExplicitGemm == false, "Not supported yet!");
    static_assert(std::is_same_v<typename GemmPipeline_::CLayout, tensor_layout::gemm::RowMajor>, "Not supported!");

    CK_TILE_HOST static auto GridSize(const KernelArgs&) { return dim3(1); }
    CK_TILE_HOST static KernelArgs MakeKernelArgs(const GroupedConvBwdDataHostArgs& hostArgs) {
        return KernelArgs(hostArgs);
    }
    CK_TILE_HOST static bool IsSupportedArgument(const KernelArgs&) { return !GemmPipeline_::Async; }
    CK_TILE_DEVICE void operator()(KernelArgs&) const { this->RunGemm(); }
};

}  // namespace ck_tile
