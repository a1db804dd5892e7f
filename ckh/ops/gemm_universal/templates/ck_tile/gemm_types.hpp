// Types that follow from a GEMM kernel's parameters and are the same for every interface of CK Tile.
#pragma once

#include <type_traits>

#include "gemm_words.hpp"

namespace ckh {

using kernel::Accumulator;
using kernel::ALayout;
using kernel::BLayout;
using kernel::Element;
using kernel::Output;
using PassThrough = ck_tile::element_wise::PassThrough;

constexpr bool a_is_row_major = std::is_same_v<ALayout, RowMajor>;
constexpr bool b_is_row_major = std::is_same_v<BLayout, RowMajor>;

// A type of this kernel alone. In a unit of several kernels, functions of CK Tile's that two of them share would have more
// callers than in a kernel compiled alone, and the compiler calls such a function instead of inlining it.
struct Shape
    : ck_tile::TileGemmShape<ck_tile::sequence<kernel::tile_m, kernel::tile_n, kernel::tile_k>,
                             ck_tile::sequence<kernel::wave_m, kernel::wave_n, kernel::wave_k>,
                             ck_tile::sequence<kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k>> {};
// Which tile a block takes: 8 and 4 are the numbers of CK Tile's own benchmark of these kernels.
using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, 8, 4>;

}  // namespace ckh
