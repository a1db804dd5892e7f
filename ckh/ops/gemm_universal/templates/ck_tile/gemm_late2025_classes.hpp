// What the templates of CK Tile's interface of late 2025 take of a GEMM kernel, and how a kernel is started. To be included
// after the types of its epilogue: Ds, DLayouts and Elementwise.
#pragma once

#include "check.hpp"
#include "gemm_widths.hpp"
#include "late2025_basic_v1.hpp"
#include "late2025_fp32.hpp"
#include "late2025_pipelines.hpp"

namespace ckh {

using BasicProblem = ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, Traits, PassThrough, PassThrough,
                                                  Element, true, width_a, width_b>;
template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem =
    ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, Traits, kernel::scheduler, HasHotLoop,
                                          Tail, PassThrough, PassThrough, Element, has_widths, width_a, width_b>;

template <Pipeline P>
struct PipelineClasses : PipelineTable<P, BasicProblem, LoopProblem> {};
// CK Tile's own where K is contiguous in both operands.
template <>
struct PipelineClasses<Pipeline::basic_v1> {
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = std::conditional_t<
        a_is_row_major && !b_is_row_major, ck_tile::GemmPipelineAGmemBGmemCRegV1<BasicProblem>,
        BasicV1<BasicProblem, LoadPolicy<ck_tile::UniversalGemmPipelineAgBgCrPolicy>>>;
};

// One group of waves: of compv5's two, the first alone stores results.
template <ck_tile::memory_operation_enum StoreOrAdd>
using ShuffledProblem = ck_tile::CShuffleEpilogueProblem<
    Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, kernel::tile_m, kernel::tile_n,
    kernel::wave_m, kernel::wave_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k, false, StoreOrAdd, 1,
    kernel::vector_c != 0, kernel::vector_c>;
template <ck_tile::memory_operation_enum StoreOrAdd, bool IsRaw>
using DirectProblem = ck_tile::DefaultGemm2DEpilogueProblem<
    Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, kernel::tile_m, kernel::tile_n,
    kernel::pad_m, kernel::pad_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k, false, IsRaw,
    StoreOrAdd>;

// The pipelines with two buffers take five tiles of K where there are three, and compv6 three where there is one.
constexpr const char* takes_more_tiles(ck_tile::index_t steps) {
    if (kernel::double_smem_buffer && steps == 3) {
        return "a pipeline with two buffers reads beyond a K that is not padded if it has 3 tiles";
    }
    return kernel::pipeline == Pipeline::compv6 && steps == 1
               ? "compv6 without padding of K reads beyond it if it has 1 tile"
               : nullptr;
}

template <class Kernel, class Arguments>
constexpr auto entry_of = ck_tile::kentry<1, OwnKernel<Kernel>, Arguments>;

}  // namespace ckh
