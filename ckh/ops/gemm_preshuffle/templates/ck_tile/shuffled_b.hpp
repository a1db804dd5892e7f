// What kernels with a shuffled B have in common in CK Tile's interface of late 2025.
#pragma once

#include "check.hpp"
#include "gemm_types.hpp"

namespace ckh {

// A has two buffers in LDS, B none.
using Traits = ck_tile::TileGemmUniversalTraits<kernel::pad_m, kernel::pad_n, kernel::pad_k, true, ALayout, BLayout,
                                                RowMajor, false, false, kernel::persistent, 1, true>;

template <ck_tile::memory_operation_enum StoreOrAdd>
using ShuffledProblem = ck_tile::CShuffleEpilogueProblem<
    Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, kernel::tile_m, kernel::tile_n,
    kernel::wave_m, kernel::wave_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k, false, StoreOrAdd, 1,
    false, 1, kernel::permute_n>;
template <ck_tile::memory_operation_enum StoreOrAdd, bool IsRaw>
using DirectProblem = ck_tile::DefaultGemm2DEpilogueProblem<
    Element, Element, Ds, Accumulator, Output, DLayouts, RowMajor, Elementwise, kernel::tile_m, kernel::tile_n,
    kernel::pad_m, kernel::pad_n, kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k, false, IsRaw,
    StoreOrAdd>;

// Tiles of A that are loaded beyond K are not multiplied.
constexpr const char* takes_more_tiles(ck_tile::index_t) { return nullptr; }

template <class Kernel, class Arguments>
constexpr auto entry_of = ck_tile::kentry<1, OwnKernel<Kernel>, Arguments>;

}  // namespace ckh
