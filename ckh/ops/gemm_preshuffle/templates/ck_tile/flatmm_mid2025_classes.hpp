// What CK Tile's flatmm of mid-2025 takes of a kernel with a shuffled B, and how it is started. To be included after the
// types of its epilogue: Ds, DLayouts and Elementwise.
#pragma once

#include "check.hpp"
#include "gemm_types.hpp"

namespace ckh {

using Traits = ck_tile::TileGemmUniversalTraits<kernel::pad_m, kernel::pad_n, kernel::pad_k, false, ALayout, BLayout,
                                                RowMajor, false, false, false, 1, true>;
using LoopProblem = ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, Traits>;

// Its loop is the same class for every K.
template <Pipeline>
struct PipelineClasses {
    using Base = ck_tile::BaseFlatmmPipelineAGmemBGmemCRegV1<LoopProblem>;
    template <bool, ck_tile::TailNumber>
    using Full = ck_tile::FlatmmPipelineAGmemBGmemCRegV1<LoopProblem>;
};

template <ck_tile::memory_operation_enum StoreOrAdd>
using ShuffledProblem = ck_tile::CShuffleEpilogueProblem<
    Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, LoopProblem::kBlockSize, kernel::tile_m,
    kernel::tile_n, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k,
    false, StoreOrAdd>;
template <ck_tile::memory_operation_enum StoreOrAdd, bool IsRaw>
using DirectProblem = ck_tile::DefaultGemm2DEpilogueProblem<Element, Element, Accumulator, Output, RowMajor,
                                                            kernel::pad_m, kernel::pad_n, kernel::warp_tile_m,
                                                            kernel::warp_tile_n, kernel::warp_tile_k, false, IsRaw,
                                                            StoreOrAdd>;

// The loop multiplies tiles in pairs: it drops the last of an odd number, and reads beyond K if there is one.
constexpr const char* takes_more_tiles(ck_tile::index_t steps) {
    return steps % 2 == 0 ? nullptr : "flatmm of mid-2025 multiplies tiles of K in pairs, and their number is odd";
}

template <class Kernel, class Arguments>
constexpr auto entry_of = ck_tile::kentry<Kernel::BlockSize().x, 1, OwnKernel<Kernel>, Arguments>;

}  // namespace ckh
