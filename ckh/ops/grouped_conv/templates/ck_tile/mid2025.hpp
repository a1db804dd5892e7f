// A convolution's kernel of CK Tile's interface of mid-2025: what is written otherwise than in the later ones.
#pragma once

#include "mid2025_fp32.hpp"
#include "mid2025_pipelines.hpp"
#include "types.hpp"

namespace ckh {

static_assert(kernel::variant != Variant::bwd_data, "these headers have no backward data");
static_assert(!kernel::two_stage, "these headers store nothing but elements");

// The traits, with what they have in the later interfaces.
struct Traits : ck_tile::GroupedConvTraits<kernel::ndim_spatial, kernel::specialization, InLayout, WeiLayout, NoTensors,
                                           OutLayout> {
    // What the backward-weight kernel calls NDimSpatial, when it is specialized.
    static constexpr ck_tile::index_t NDimSpatial_ = kernel::ndim_spatial;
    using AsLayoutFwd = typename GroupedConvImplicitGemmTraits::ALayout;
    using BsLayoutFwd = typename GroupedConvImplicitGemmTraits::BLayout;
    using CLayoutFwd = typename GroupedConvImplicitGemmTraits::CLayout;
    using AsLayoutBwdWeight = AsLayoutFwd;
    using BsLayoutBwdWeight = BsLayoutFwd;
    using CLayoutBwdWeight = CLayoutFwd;
    struct FixedGemmParams {
        static constexpr bool kPadM = true, kPadN = true, kPadK = true;
        static constexpr bool TransposeC = false, UseStructuredSparsity = false, Persistent = false;
    };
};
using Partitioner = ck_tile::GemmTile1DPartitioner<Shape>;
using ForwardArguments = ck_tile::GroupedConvFwdHostArgs;

}  // namespace ckh

#include "directions.hpp"

namespace ckh {

using BasicProblem = ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits, Element, true,
                                                  kernel::vector_a, kernel::vector_b>;

template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem = ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits,
                                                          kernel::scheduler, HasHotLoop, Tail, Element, true,
                                                          kernel::vector_a, kernel::vector_b>;

template <Pipeline P>
struct TableOf : PipelineTable<P, BasicProblem, LoopProblem> {};

template <ck_tile::memory_operation_enum StoreOrAdd>
using EpilogueProblem = ck_tile::CShuffleEpilogueProblem<
    Element, Element, NoTensors, Accumulator, Stored, typename Traits::ImplicitGemmDsLayout,
    ck_tile::tensor_layout::gemm::RowMajor, PassThrough, BasicProblem::kBlockSize, kernel::tile_m, kernel::tile_n,
    kernel::wave_m, kernel::wave_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k, Fixed::TransposeC,
    StoreOrAdd, kernel::num_wave_groups, true, kernel::vector_c>;

template <class Kernel, class... Arguments>
Launch starting(Kernel, dim3 grid, const Arguments&... arguments) {
    constexpr dim3 block = Kernel::BlockSize();
    return launch_of(ck_tile::kentry<block.x, kernel::block_per_cu, OwnKernel<Kernel>, Arguments...>, grid, block,
                     arguments...);
}

}  // namespace ckh

#include "looped.hpp"

namespace ckh {

inline int64_t reduction_length(const Problem& p) {
    return kernel::variant == Variant::forward ? p.c / p.g * p.z * p.y * p.x : p.n * p.do_ * p.ho * p.wo;
}

// CK Tile cuts a part's reduction into whole warp tiles.
inline int64_t part_length(const Problem& p) {
    return divide_up(reduction_length(p), kernel::split_k * kernel::warp_tile_k) * kernel::warp_tile_k;
}

// Steps of the main loop.
inline ck_tile::index_t loop_steps(const Problem& p) {
    return Partitioner::GetLoopNum(
        static_cast<ck_tile::index_t>(kernel::split_k > 1 ? part_length(p) : reduction_length(p)));
}

// CK Tile neither cuts a part's last tile at the part's end, nor chooses the loop's tail for each part; and only its
// forward kernels cut tensors whose offsets do not fit 32 bits.
inline const char* interface_refuses(const Problem& p) {
    if (kernel::variant != Variant::forward && (input_elements(p) > INT32_MAX || output_elements(p) > INT32_MAX)) {
        return "a tensor has more than 2^31 - 1 elements";
    }
    if constexpr (kernel::split_k > 1) {
        const int64_t length = part_length(p), last = reduction_length(p) - length * (kernel::split_k - 1);
        if (length % kernel::tile_k != 0 || divide_up(last, kernel::tile_k) != length / kernel::tile_k) {
            return "split-K needs parts of equally many whole tiles of K";
        }
    }
    return nullptr;
}

template <class Kernel, class Arguments>
dim3 grid_of(const Problem&, Arguments& arguments) {
    return Kernel::GridSize(arguments);
}

}  // namespace ckh

#define CKH_ONE_STAGE  // its headers lack the conversion that a second stage is
#include "launch.hpp"
