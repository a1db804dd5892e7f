// A convolution's kernel of CK Tile's interface of late 2025: what is written otherwise than in the others.
#pragma once

#include "late2025_basic_v1.hpp"
#include "late2025_fp32.hpp"
#include "late2025_pipelines.hpp"
#include "types.hpp"

namespace ckh {

static_assert(!kernel::explicit_gemm, "these headers have no explicit GEMM");

struct Traits : ck_tile::GroupedConvTraits<kernel::ndim_spatial, kernel::specialization, InLayout, WeiLayout, NoTensors,
                                           OutLayout, kernel::vector_a, kernel::vector_b, kernel::vector_c,
                                           kernel::num_groups_to_merge, kernel::split_image> {
    // What the backward kernels call NDimSpatial.
    static constexpr ck_tile::index_t NDimSpatial_ = kernel::ndim_spatial;
};
using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, Traits::FixedGemmParams::TilePartitionerGroupNum,
                                                               Traits::FixedGemmParams::TilePartitionerM01>;
using ForwardArguments = ck_tile::GroupedConvFwdHostArgs<ck_tile::element_wise::PassThrough>;

}  // namespace ckh

#include "addressing.hpp"
#include "directions.hpp"

namespace ckh {

using BasicProblem = ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits, PassThrough,
                                                  PassThrough, Element, Fixed::FixedVectorSize, kernel::vector_a,
                                                  kernel::vector_b>;

template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem =
    ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits, kernel::scheduler,
                                          HasHotLoop, Tail, PassThrough, PassThrough, Element, Fixed::FixedVectorSize,
                                          kernel::vector_a, kernel::vector_b>;

template <Pipeline P>
struct TableOf : PipelineTable<P, BasicProblem, LoopProblem> {};

// The scheduler of basic_v1 is that of its block GEMM. CK Tile's own takes the default one, which is intrawave but loads
// what it multiplies, or the interwave one. Operands are only transposed in the backward directions.
template <>
struct TableOf<Pipeline::basic_v1> {
    using Scheduled = LoopProblem<true, ck_tile::TailNumber::Full>;
    using Policy = LoadPolicy<ck_tile::UniversalGemmPipelineAgBgCrPolicy>;
    static constexpr bool is_intrawave = kernel::scheduler == ck_tile::GemmPipelineScheduler::Intrawave;
    using OfForward = std::conditional_t<is_intrawave, BasicProblem, Scheduled>;
    template <bool, ck_tile::TailNumber>
    using Full = std::conditional_t<kernel::variant == Variant::forward,
                                    ck_tile::GemmPipelineAGmemBGmemCRegV1<OfForward, Policy>,
                                    BasicV1<Scheduled, Policy>>;
};

template <ck_tile::memory_operation_enum StoreOrAdd>
using EpilogueProblem = ck_tile::CShuffleEpilogueProblem<
    Element, Element, NoTensors, Accumulator, Stored, typename Traits::ImplicitGemmDsLayout, typename Fixed::ELayout,
    PassThrough, kernel::tile_m, kernel::tile_n, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m,
    kernel::warp_tile_n, kernel::warp_tile_k, Fixed::TransposeC, StoreOrAdd, kernel::num_wave_groups,
    Fixed::FixedVectorSize, kernel::vector_c>;

}  // namespace ckh

#include "looped.hpp"
#include "start.hpp"

namespace ckh {

// Steps of the main loop; all parts of K have equally many.
inline ck_tile::index_t loop_steps(int64_t length) {
    return static_cast<ck_tile::index_t>(divide_up(length, int64_t{kernel::split_k} * kernel::tile_k));
}

inline ck_tile::index_t loop_steps(const Problem& p) { return loop_steps(reductions(p).shortest); }

// A launch is of one kernel, so the main loops of backward data's GEMMs must run and end alike.
template <Pipeline P>
bool loops_run_alike(const Problem& p) {
    if constexpr (kernel::variant == Variant::bwd_data && P != Pipeline::basic_v1) {
        using Base = typename TableOf<P>::Base;
        const ck_tile::index_t least = loop_steps(p);
        return every_reduction(p, [&](int64_t length) {
            const ck_tile::index_t steps = loop_steps(length);
            return Base::BlockHasHotloop(steps) == Base::BlockHasHotloop(least) &&
                   Base::GetBlockLoopTailNum(steps) == Base::GetBlockLoopTailNum(least);
        });
    }
    return true;
}

inline const char* interface_refuses(const Problem& p) {
    if (!is_addressable(p)) return "a tensor that CK Tile does not cut has more than 2^31 - 1 bytes";
    if (!loops_run_alike<kernel::pipeline>(p)) return "backward data's GEMMs differ in how their main loops run or end";
    return nullptr;
}

// The kernel leaves the pieces of a split image to the launch. It is one piece: images that CK Tile cuts into more are
// those with more than 2^31 bytes, which its offsets do not reach either way.
template <class Kernel, class Arguments>
dim3 grid_of(const Problem& p, Arguments& arguments) {
    if constexpr (kernel::split_image) {
        const auto depth = static_cast<ck_tile::index_t>(p.do_), height = static_cast<ck_tile::index_t>(p.ho),
                   width = static_cast<ck_tile::index_t>(p.wo);
        const auto piece =
            ck_tile::calculate_spatial_piece<Partitioner>(0, 1, 1, 1, depth, height, width, depth, height, width,
                                                          arguments.n_per_split, arguments.GemmN, 0);
        auto& image = arguments.split_image;
        image.total_d = depth, image.total_h = height, image.total_w = width;
        image.total_spatial = depth * height * width;
        image.pieces[0] = {piece.block_start, piece.block_end, piece.d_start, piece.h_start,
                           piece.w_start,     piece.d_size,    piece.h_size,  piece.w_size};
        return dim3(static_cast<unsigned>(piece.block_end), static_cast<unsigned>(arguments.GemmBatch),
                    static_cast<unsigned>(arguments.n_splits));
    } else {
        return Kernel::GridSize(arguments);
    }
}

}  // namespace ckh

#include "launch.hpp"
