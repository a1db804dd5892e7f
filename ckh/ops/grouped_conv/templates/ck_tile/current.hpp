// A convolution's kernel of CK Tile's current interface: what is written otherwise than in the others. Pipelines find out
// when they run whether their main loop runs and how it ends, the epilogue whether it stores or adds, so a kernel is one
// class.
//
// This was written from CK Tile's published sources and has been checked against stubs of them only, which declare what
// is used here with the published template parameters and argument types (tests/bench/codegen/current_stub). It has not
// been compiled against the sources themselves, and no GPU has run it.
#pragma once

#include "current_pipelines.hpp"
#include "types.hpp"

namespace ckh {

static_assert(kernel::variant == Variant::bwd_weight || !kernel::two_stage, "only backward weight has two stages");
static_assert(kernel::variant == Variant::forward || !kernel::split_image, "only forward has split images");
static_assert(kernel::variant != Variant::forward || kernel::split_k == 1, "forward cannot split K");
static_assert(kernel::variant != Variant::bwd_data || !kernel::explicit_gemm, "backward data has no explicit GEMM");
static_assert(kernel::variant != Variant::bwd_data || kernel::num_groups_to_merge == 1,
              "backward data has no merged groups");

using Traits = ck_tile::GroupedConvTraits<kernel::ndim_spatial, kernel::specialization, InLayout, WeiLayout, NoTensors,
                                          OutLayout, kernel::vector_a, kernel::vector_b, kernel::vector_c,
                                          kernel::num_groups_to_merge, kernel::split_image, kernel::explicit_gemm>;
using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, Traits::FixedGemmParams::TilePartitionerGroupNum,
                                                               Traits::FixedGemmParams::TilePartitionerM01>;
using ForwardArguments = ck_tile::GroupedConvFwdHostArgs<ck_tile::element_wise::PassThrough>;

// CK Tile's own sources give basic_v1, mem and compv3 the policy of the convolutions, and the others their default.
using ConvPolicy = ck_tile::GroupedConvUniversalPipelineAgBgCrPolicy;

// Not every tree has these; one that lacks them must still build the others.
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_async.hpp")
template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::comp_async, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAgBgCrCompAsync<Problem>;
};
#endif
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_agmem_bgmem_creg_async_v1.hpp")
template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::basic_async_v1, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAGmemBGmemCRegAsyncV1<Problem>;
};
#endif

}  // namespace ckh

#include "addressing.hpp"
#include "directions.hpp"
#include "start.hpp"

namespace ckh {

using GemmProblem =
    ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits, kernel::scheduler,
                                          PassThrough, PassThrough, Element, Element, Fixed::FixedVectorSize,
                                          kernel::vector_a, kernel::vector_b>;
using Gemm = typename PipelineOf<kernel::pipeline, GemmProblem, ConvPolicy>::Class;

// The epilogue writes one matrix instruction's columns at a time (the 1), as CK Tile's own convolutions do.
using Epilogue = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    Element, Element, NoTensors, Accumulator, Stored, typename Traits::ImplicitGemmDsLayout, typename Fixed::ELayout,
    PassThrough, Partitioner::MPerBlock, Partitioner::NPerBlock, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m,
    kernel::warp_tile_n, kernel::warp_tile_k, Fixed::TransposeC, kernel::num_wave_groups, Fixed::FixedVectorSize,
    kernel::vector_c, 1, kernel::double_smem_buffer>>;

// Calls use(kernel): there is one for all problems.
template <class Use>
void with_kernel(const Problem&, Use use) {
    use(typename Direction::template Kernel<Gemm, Epilogue>{});
}

inline const char* interface_refuses(const Problem& p) {
    if (!is_addressable(p)) return "a tensor that CK Tile does not cut has more than 2^31 - 1 bytes";
    // CK Tile says so in its backward weight kernel, the only one that checks it.
    if (kernel::pipeline == Pipeline::compv6 &&
        reductions(p).shortest <= static_cast<int64_t>(kernel::split_k) * kernel::tile_k) {
        return "compv6 gives wrong results when its main loop takes a single step";
    }
    return nullptr;
}

template <class Kernel, class Arguments>
dim3 grid_of(const Problem&, Arguments& arguments) {
    return Kernel::GridSize(arguments);
}

}  // namespace ckh

#include "launch.hpp"
