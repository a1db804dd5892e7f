// What a GEMM kernel is in CK Tile's current interface: its traits, pipeline, epilogue and kernel class.
#pragma once

#include "check.hpp"
#include "current_pipelines.hpp"
#include "gemm_plain.hpp"

namespace ckh {

// What follows UsePersistentKernel is left to its defaults: one group of waves, B as it lies, 16-byte vectors.
using Traits = ck_tile::TileGemmUniversalTraits<kernel::pad_m, kernel::pad_n, kernel::pad_k, kernel::double_smem_buffer,
                                                ALayout, BLayout, RowMajor, false, false, kernel::persistent>;

// A pipeline takes the widths of both operands or of none; beside one that the kernel has, the other is what the
// universal policy makes of the tile.
using WidthPolicy = ck_tile::UniversalGemmPipelineAgBgCrPolicy;
using WidthProblem =
    ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, Traits, kernel::scheduler>;
constexpr bool has_widths = kernel::vector_a != 0 || kernel::vector_b != 0;
constexpr ck_tile::index_t width_a = kernel::vector_a ? kernel::vector_a : WidthPolicy::GetVectorSizeA<WidthProblem>();
constexpr ck_tile::index_t width_b = kernel::vector_b ? kernel::vector_b : WidthPolicy::GetVectorSizeB<WidthProblem>();

using GemmProblem =
    ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, Traits, kernel::scheduler, PassThrough,
                                          PassThrough, Element, Element, has_widths, width_a, width_b>;

using Gemm = typename PipelineOf<kernel::pipeline, GemmProblem>::Class;

template <Epilogue>
struct EpilogueOf;

template <>
struct EpilogueOf<Epilogue::cshuffle> {
    using Class = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
        Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, kernel::tile_m,
        kernel::tile_n, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k,
        false, 1, kernel::vector_c != 0, kernel::vector_c>>;
};
// Raw stores, as is the epilogue's default, but for results that parts of K are also added to: raw additions of CK Tile
// of mid-2025 do not compile. Sixteen-bit results, which this epilogue stores one by one, are never added to.
template <>
struct EpilogueOf<Epilogue::direct> {
    static constexpr bool is_raw = sizeof(Output) == 2;
    using Class = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
        Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, kernel::tile_m,
        kernel::tile_n, kernel::pad_m, kernel::pad_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k,
        false, is_raw>>;
};

using EpilogueClass = typename EpilogueOf<kernel::epilogue>::Class;

// GemmKernel only wraps this class, and counts the blocks of a persistent kernel by compiling the kernel once more.
using Kernel = ck_tile::UniversalGemmKernel<Partitioner, Gemm, EpilogueClass>;

template <class Kernel, class Arguments>
constexpr auto entry_of = ck_tile::kentry<1, OwnKernel<Kernel>, Arguments>;

}  // namespace ckh
