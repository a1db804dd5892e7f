// CK Tile's interface of mid-2025: the pipeline is told at compile time whether its main loop runs and how it ends, so
// each such case is a kernel of its own, chosen when it is launched. It has forward and backward weight, and no merged
// groups, split images or explicit GEMMs.
#pragma once

#include <numeric>

#include "second_stage.hpp"
#include "types.hpp"

namespace ckh {

constexpr bool is_forward = kernel::variant == Variant::forward;
static_assert(kernel::variant != Variant::bwd_data, "these headers have no backward data");

// The policy's own choice of vector widths is replaced by the kernel's.
template <class Policy>
struct FixedVectors : Policy {
    template <class P>
    CK_TILE_HOST_DEVICE static constexpr auto GetVectorSizeA() {
        return P::VectorSizeA;
    }
    template <class P>
    CK_TILE_HOST_DEVICE static constexpr auto GetVectorSizeB() {
        return P::VectorSizeB;
    }
};

using Traits = ck_tile::GroupedConvTraits<kernel::ndim_spatial, kernel::specialization, InLayout, WeiLayout, NoTensors,
                                          OutLayout>;
using Implicit = typename Traits::GroupedConvImplicitGemmTraits;
using Partitioner = ck_tile::GemmTile1DPartitioner<Shape>;
using UniversalTraits =
    ck_tile::TileGemmUniversalTraits<true, true, true, kernel::double_smem_buffer, typename Implicit::ALayout,
                                     typename Implicit::BLayout, typename Implicit::CLayout, false, false, false,
                                     kernel::num_wave_groups>;
using Element = kernel::Element;
using BasicProblem = ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits, Element, true,
                                                  kernel::vector_a, kernel::vector_b>;

template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem = ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits,
                                                          kernel::scheduler, HasHotLoop, Tail, Element, true,
                                                          kernel::vector_a, kernel::vector_b>;

template <Pipeline>
struct PipelineClasses;

template <>
struct PipelineClasses<Pipeline::basic_v1> {
    template <bool, ck_tile::TailNumber>
    using Full = ck_tile::GemmPipelineAGmemBGmemCRegV1<BasicProblem>;
};
template <>
struct PipelineClasses<Pipeline::mem> {
    using Base = ck_tile::BaseGemmPipelineAgBgCrMem<BasicProblem>;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = ck_tile::GemmPipelineAgBgCrMem<LoopProblem<HasHotLoop, Tail>,
                                                FixedVectors<ck_tile::UniversalGemmPipelineAgBgCrPolicy>>;
};
template <>
struct PipelineClasses<Pipeline::compv3> {
    using Base = ck_tile::BaseGemmPipelineAgBgCrCompV3<BasicProblem>;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = ck_tile::GemmPipelineAgBgCrCompV3<LoopProblem<HasHotLoop, Tail>,
                                                   FixedVectors<ck_tile::UniversalGemmPipelineAgBgCrPolicy>>;
};
template <>
struct PipelineClasses<Pipeline::compv4> {
    using Base = ck_tile::BaseGemmPipelineAgBgCrCompV4<BasicProblem>;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = ck_tile::GemmPipelineAgBgCrCompV4<LoopProblem<HasHotLoop, Tail>,
                                                   FixedVectors<ck_tile::GemmPipelineAgBgCrCompV4DefaultPolicy>>;
};
template <>
struct PipelineClasses<Pipeline::compv5> {
    using Base = ck_tile::BaseGemmPipelineAgBgCrCompV5<BasicProblem>;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = ck_tile::GemmPipelineAgBgCrCompV5<LoopProblem<HasHotLoop, Tail>,
                                                   FixedVectors<ck_tile::GemmPipelineAgBgCrCompV5DefaultPolicy>>;
};

using Classes = PipelineClasses<kernel::pipeline>;

using Epilogue = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    Element, Element, NoTensors, Accumulator, Stored, typename Traits::ImplicitGemmDsLayout,
    ck_tile::tensor_layout::gemm::RowMajor, ck_tile::element_wise::PassThrough, BasicProblem::kBlockSize,
    Partitioner::MPerBlock, Partitioner::NPerBlock, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m,
    kernel::warp_tile_n, kernel::warp_tile_k, BasicProblem::TransposeC, ck_tile::memory_operation_enum::set,
    kernel::num_wave_groups, true, kernel::vector_c>>;

template <bool HasHotLoop, ck_tile::TailNumber Tail>
struct Chosen {
    using Gemm = typename Classes::template Full<HasHotLoop, Tail>;
    using Forward = ck_tile::GroupedConvolutionForwardKernel<Traits, Partitioner, Gemm, Epilogue>;
    using BwdWeight = ck_tile::GroupedConvolutionBackwardWeightKernel<Traits, Partitioner, Gemm, Epilogue>;
    using Kernel = std::conditional_t<is_forward, Forward, BwdWeight>;
};

inline auto host_arguments(const Problem& p, const Operands& operands) {
    if constexpr (is_forward) {
        return ck_tile::GroupedConvFwdHostArgs(conv_param(p), operands.a, operands.b, {}, operands.out, 1);
    } else {
        void* weights = kernel::two_stage ? operands.workspace : operands.out;
        return ck_tile::GroupedConvBwdWeightHostArgs(conv_param(p), operands.b, weights, {}, operands.a, 1);
    }
}

// Steps of the main loop.
inline ck_tile::index_t loop_steps(const Problem& p) {
    const int64_t forward_k = p.c / p.g * p.z * p.y * p.x, weight_k = p.n * p.do_ * p.ho * p.wo;
    return Partitioner::GetLoopNum(static_cast<ck_tile::index_t>(is_forward ? forward_k : weight_k));
}

// Calls use(kernel type) with the kernel that fits the main loop.
template <class Use>
void with_kernel(const Problem& p, Use use) {
    if constexpr (kernel::pipeline == Pipeline::basic_v1) {
        use(typename Chosen<true, ck_tile::TailNumber::Full>::Kernel{});
    } else {
        using Base = typename Classes::Base;
        const ck_tile::index_t steps = loop_steps(p);
        const auto run = [&](auto has_hot_loop, auto tail) {
            use(typename Chosen<has_hot_loop.value, tail.value>::Kernel{});
        };
        Base::TailHandler(run, Base::BlockHasHotloop(steps), Base::GetBlockLoopTailNum(steps));
    }
}

inline bool kernel_supports(const Problem& p) {
    bool supported = false;
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        supported = Kernel::IsSupportedArgument(Kernel::MakeKernelArgs(host_arguments(p, Operands{})));
    });
    return supported;
}

inline int64_t workspace_bytes(const Problem& p) { return kernel::two_stage ? filter_elements(p) * 4 : 0; }

inline void launch(const Problem& p, const Operands& operands, hipStream_t stream) {
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        const auto arguments = Kernel::MakeKernelArgs(host_arguments(p, operands));
        constexpr dim3 block = Kernel::BlockSize();
        const auto start = ck_tile::make_kernel<block.x, kernel::block_per_cu>(chosen, Kernel::GridSize(arguments),
                                                                               block, 0, arguments);
        start(ck_tile::stream_config{stream});
    });
    launch_second_stage<kernel::two_stage>(p, operands, stream);
}

}  // namespace ckh
