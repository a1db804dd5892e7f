// What a GEMM kernel is in CK Tile's interface of mid-2025: its traits, pipeline, epilogue and kernel class. The pipeline
// is told at compile time whether its main loop runs and how it ends, and the epilogue whether it stores or adds, so each
// such case is a class of its own.
#pragma once

#include "gemm_types.hpp"
#include "mid2025_fp32.hpp"
#include "mid2025_pipelines.hpp"

namespace ckh {

using Operation = ck_tile::memory_operation_enum;

// The waves of compv5 are two groups, one of which loads while the other computes.
constexpr ck_tile::index_t num_wave_groups = kernel::pipeline == Pipeline::compv5 ? 2 : 1;

using Traits = ck_tile::TileGemmUniversalTraits<kernel::pad_m, kernel::pad_n, kernel::pad_k, kernel::double_smem_buffer,
                                                ALayout, BLayout, RowMajor, false, false, kernel::persistent,
                                                num_wave_groups>;

// Vector widths: the kernel's own, or where it has none what the universal policy makes of the tile. Both are stated to
// the pipeline, since basic_v1 would load padded operands one element at a time if it had the choice.
using WidthPolicy = ck_tile::UniversalGemmPipelineAgBgCrPolicy;
using WidthProblem = ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, Traits>;
constexpr ck_tile::index_t width_a = kernel::vector_a ? kernel::vector_a : WidthPolicy::GetVectorSizeA<WidthProblem>();
constexpr ck_tile::index_t width_b = kernel::vector_b ? kernel::vector_b : WidthPolicy::GetVectorSizeB<WidthProblem>();

using BasicProblem =
    ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, Traits, Element, true, width_a, width_b>;
template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem = ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, Traits,
                                                          kernel::scheduler, HasHotLoop, Tail, Element, true, width_a,
                                                          width_b>;

template <Pipeline P>
using PipelineClasses = PipelineTable<P, BasicProblem, LoopProblem>;

template <Epilogue, Operation>
struct EpilogueOf;

template <Operation StoreOrAdd>
struct EpilogueOf<Epilogue::cshuffle, StoreOrAdd> {
    using Class = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
        Element, Element, NoTensors, Accumulator, Output, NoTensors, RowMajor, PassThrough,
        BasicProblem::kBlockSize, Partitioner::MPerBlock, Partitioner::NPerBlock, kernel::wave_m, kernel::wave_n,
        kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k, BasicProblem::TransposeC, StoreOrAdd,
        num_wave_groups, kernel::vector_c != 0, kernel::vector_c>>;
};
// Raw instructions are the epilogue's choice for stores; for additions it has them, but they do not compile.
template <Operation StoreOrAdd>
struct EpilogueOf<Epilogue::direct, StoreOrAdd> {
    static constexpr bool is_raw = StoreOrAdd == Operation::set;
    using Class = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
        Element, Element, Accumulator, Output, RowMajor, kernel::pad_m, kernel::pad_n, kernel::warp_tile_m,
        kernel::warp_tile_n, kernel::warp_tile_k, BasicProblem::TransposeC, is_raw, StoreOrAdd>>;
};

template <bool HasHotLoop, ck_tile::TailNumber Tail, Operation StoreOrAdd>
struct Chosen {
    using Gemm = typename PipelineClasses<kernel::pipeline>::template Full<HasHotLoop, Tail>;
    // GemmKernel only wraps this class, and counts the blocks of a persistent kernel by compiling the kernel once more.
    using Kernel =
        ck_tile::UniversalGemmKernel<Partitioner, Gemm, typename EpilogueOf<kernel::epilogue, StoreOrAdd>::Class>;
};

}  // namespace ckh
