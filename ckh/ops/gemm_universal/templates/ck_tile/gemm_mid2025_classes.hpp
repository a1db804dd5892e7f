// What the templates of CK Tile's interface of mid-2025 take of a GEMM kernel, and how a kernel is started. To be included
// after the types of its epilogue: Ds, DLayouts and Elementwise.
#pragma once

#include "check.hpp"
#include "gemm_widths.hpp"
#include "mid2025_fp32.hpp"
#include "mid2025_pipelines.hpp"

namespace ckh {

using BasicProblem =
    ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, Traits, Element, true, width_a, width_b>;
template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem = ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, Traits,
                                                          kernel::scheduler, HasHotLoop, Tail, Element, has_widths,
                                                          width_a, width_b>;

template <Pipeline P>
using PipelineClasses = PipelineTable<P, BasicProblem, LoopProblem>;

template <ck_tile::memory_operation_enum StoreOrAdd>
using ShuffledProblem = ck_tile::CShuffleEpilogueProblem<
    Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, BasicProblem::kBlockSize,
    kernel::tile_m, kernel::tile_n, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m, kernel::warp_tile_n,
    kernel::warp_tile_k, false, StoreOrAdd, num_wave_groups, kernel::vector_c != 0, kernel::vector_c>;
template <ck_tile::memory_operation_enum StoreOrAdd, bool IsRaw>
using DirectProblem = ck_tile::DefaultGemm2DEpilogueProblem<Element, Element, Accumulator, Output, RowMajor,
                                                            kernel::pad_m, kernel::pad_n, kernel::warp_tile_m,
                                                            kernel::warp_tile_n, kernel::warp_tile_k, false, IsRaw,
                                                            StoreOrAdd>;

// compv4 takes three tiles of K where there is one, and five where there are three.
constexpr const char* takes_more_tiles(ck_tile::index_t steps) {
    return kernel::pipeline == Pipeline::compv4 && (steps == 1 || steps == 3)
               ? "compv4 without padding of K reads beyond it if it has 1 or 3 tiles"
               : nullptr;
}

template <class Kernel, class Arguments>
constexpr auto entry_of = ck_tile::kentry<Kernel::BlockSize().x, 1, OwnKernel<Kernel>, Arguments>;

}  // namespace ckh
