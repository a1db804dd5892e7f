// CK Tile's interface of mid-2025: the pipeline is told at compile time whether its main loop runs and how it ends, so
// each such case is a kernel of its own, chosen when it is launched. It has forward and backward weight, and no merged
// groups, split images, explicit GEMMs or second stages.
#pragma once

#include "mid2025_fp32.hpp"
#include "mid2025_pipelines.hpp"
#include "types.hpp"

namespace ckh {

constexpr bool is_forward = kernel::variant == Variant::forward;
static_assert(kernel::variant != Variant::bwd_data, "these headers have no backward data");
static_assert(!kernel::two_stage, "these headers store nothing but elements");

constexpr bool is_split = kernel::split_k > 1;
constexpr auto memory_operation =
    is_split ? ck_tile::memory_operation_enum::atomic_add : ck_tile::memory_operation_enum::set;

struct Traits : ck_tile::GroupedConvTraits<kernel::ndim_spatial, kernel::specialization, InLayout, WeiLayout, NoTensors,
                                           OutLayout> {
    // What the backward-weight kernel calls NDimSpatial, when it is specialized.
    static constexpr ck_tile::index_t NDimSpatial_ = kernel::ndim_spatial;
};
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

template <Pipeline P>
using PipelineClasses = PipelineTable<P, BasicProblem, LoopProblem>;

using Epilogue = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    Element, Element, NoTensors, Accumulator, Element, typename Traits::ImplicitGemmDsLayout,
    ck_tile::tensor_layout::gemm::RowMajor, ck_tile::element_wise::PassThrough, BasicProblem::kBlockSize,
    Partitioner::MPerBlock, Partitioner::NPerBlock, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m,
    kernel::warp_tile_n, kernel::warp_tile_k, BasicProblem::TransposeC, memory_operation,
    kernel::num_wave_groups, true, kernel::vector_c>>;

template <bool HasHotLoop, ck_tile::TailNumber Tail>
struct Chosen {
    using Gemm = typename PipelineClasses<kernel::pipeline>::template Full<HasHotLoop, Tail>;
    using Forward = ck_tile::GroupedConvolutionForwardKernel<Traits, Partitioner, Gemm, Epilogue>;
    using BwdWeight = ck_tile::GroupedConvolutionBackwardWeightKernel<Traits, Partitioner, Gemm, Epilogue>;
    using Kernel = std::conditional_t<is_forward, Forward, BwdWeight>;
};

inline auto host_arguments(const Problem& p, const Operands& operands) {
    if constexpr (is_forward) {
        return ck_tile::GroupedConvFwdHostArgs(conv_param(p), operands.a, operands.b, {}, operands.out, 1);
    } else {
        return ck_tile::GroupedConvBwdWeightHostArgs(conv_param(p), operands.b, operands.out, {}, operands.a,
                                                     kernel::split_k);
    }
}

inline int64_t reduction_length(const Problem& p) {
    return is_forward ? p.c / p.g * p.z * p.y * p.x : p.n * p.do_ * p.ho * p.wo;
}

// The reduction of one of the parts that it is split into: whole warp tiles, as CK Tile cuts it.
inline int64_t part_length(const Problem& p) {
    return divide_up(reduction_length(p), kernel::split_k * kernel::warp_tile_k) * kernel::warp_tile_k;
}

// Steps of the main loop.
inline ck_tile::index_t loop_steps(const Problem& p) {
    return Partitioner::GetLoopNum(static_cast<ck_tile::index_t>(is_split ? part_length(p) : reduction_length(p)));
}

// CK Tile neither cuts a part's last tile at the part's end, nor chooses the loop's tail for each part; and only its
// forward kernels cut tensors whose offsets do not fit 32 bits.
inline const char* interface_refuses(const Problem& p) {
    if (!is_forward && (input_elements(p) > INT32_MAX || output_elements(p) > INT32_MAX)) {
        return "a tensor has more than 2^31 - 1 elements";
    }
    if constexpr (is_split) {
        const int64_t length = part_length(p), last = reduction_length(p) - length * (kernel::split_k - 1);
        if (length % kernel::tile_k != 0 || divide_up(last, kernel::tile_k) != length / kernel::tile_k) {
            return "split-K needs parts of equally many whole tiles of K";
        }
    }
    return nullptr;
}

// Calls use(kernel) with the kernel that fits the main loop.
template <Pipeline P, class Use>
void with_kernel_of(const Problem& p, Use use) {
    if constexpr (P == Pipeline::basic_v1) {
        use(typename Chosen<true, ck_tile::TailNumber::Full>::Kernel{});
    } else {
        using Base = typename PipelineClasses<P>::Base;
        const ck_tile::index_t steps = loop_steps(p);
        const auto run = [&](auto has_hot_loop, auto tail) {
            use(typename Chosen<has_hot_loop.value, tail.value>::Kernel{});
        };
        Base::TailHandler(run, Base::BlockHasHotloop(steps), Base::GetBlockLoopTailNum(steps));
    }
}

template <class Use>
void with_kernel(const Problem& p, Use use) {
    with_kernel_of<kernel::pipeline>(p, use);
}

inline bool kernel_supports(const Problem& p) {
    bool supported = false;
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        supported = Kernel::IsSupportedArgument(Kernel::MakeKernelArgs(host_arguments(p, Operands{})));
    });
    return supported;
}

inline int64_t workspace_bytes(const Problem&) { return 0; }

inline void launch(const Problem& p, const Operands& operands, hipStream_t stream) {
    if constexpr (is_split) {
        const size_t bytes = static_cast<size_t>(filter_elements(p)) * sizeof(Element);
        check(hipMemsetAsync(operands.out, 0, bytes, stream), "hipMemsetAsync");
    }
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        const auto arguments = Kernel::MakeKernelArgs(host_arguments(p, operands));
        constexpr dim3 block = Kernel::BlockSize();
        const auto start = ck_tile::make_kernel<block.x, kernel::block_per_cu>(chosen, Kernel::GridSize(arguments),
                                                                               block, 0, arguments);
        start(ck_tile::stream_config{stream});
    });
}

}  // namespace ckh
