// The register block that a kernel's waves and warp tiles stand for.
//
// Columns: wave_n * warp_tile_n floats, that is kVectors SIMD vectors. Rows: as many as the registers hold next to one
// operand's vectors, at most wave_m * warp_tile_m, and divided evenly over tile_m.
#pragma once

#include "simd.hpp"

namespace ckh {

constexpr int clamp_vectors(int vectors) {
    const int most = kernel::registers / 4;
    return vectors < 1 ? 1 : vectors > most ? most : vectors;
}

constexpr int kVectors = clamp_vectors(kernel::wave_n * kernel::warp_tile_n / kLanes);

constexpr int registers_of(int rows) { return rows * kVectors + (rows < kVectors ? rows : kVectors) + 1; }

constexpr int most_rows() {
    int rows = 1;
    while (registers_of(rows + 1) <= kernel::registers && rows < kernel::wave_m * kernel::warp_tile_m) ++rows;
    return rows;
}

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

constexpr int kRows = ceil_div(kernel::tile_m, ceil_div(kernel::tile_m, most_rows()));
constexpr int kColumns = kVectors * kLanes;
constexpr int kTileM = kernel::tile_m;
constexpr int kTileN = ceil_div(kernel::tile_n, kColumns) * kColumns;
constexpr int kTileK = kernel::tile_k;
// Rows that a table or panel of a tile holds: the last register block may reach beyond the tile.
constexpr int kTableRows = kTileM + kRows;
// Steps of the reduction taken together: one step of the matrix instruction is eight of ours.
constexpr int kUnroll = kernel::warp_tile_k / 8 < 1 ? 1 : kernel::warp_tile_k / 8 > 4 ? 4 : kernel::warp_tile_k / 8;

template <int Value>
struct Constant {
    static constexpr int value = Value;
};

// Calls block(Constant<R>, row, valid) over `rows` rows; the last block takes the smallest R that holds what is left.
template <class Block>
CKH_INLINE void for_row_blocks(int64_t rows, Block block) {
    constexpr int third = ceil_div(kRows, 3);
    constexpr int two_thirds = ceil_div(2 * kRows, 3);
    for (int64_t row = 0; row < rows; row += kRows) {
        const int64_t left = rows - row;
        if (left <= third) {
            block(Constant<third>{}, row, static_cast<int>(left));
        } else if (left <= two_thirds) {
            block(Constant<two_thirds>{}, row, static_cast<int>(left));
        } else {
            block(Constant<kRows>{}, row, static_cast<int>(left < kRows ? left : kRows));
        }
    }
}

// The widest block of merged groups that `vectors` fill: all of kVectors, half of them, or one.
constexpr int kHalfVectors = ceil_div(kVectors, 2);

CKH_INLINE int64_t width_of(int64_t vectors) {
    return vectors >= kVectors ? kVectors : vectors >= kHalfVectors ? kHalfVectors : 1;
}

template <class Use>
CKH_INLINE void for_width(int64_t width, Use use) {
    if (width == kVectors) {
        use(Constant<kVectors>{});
    } else if (width == kHalfVectors) {
        use(Constant<kHalfVectors>{});
    } else {
        use(Constant<1>{});
    }
}

// Visits the register blocks of a tile: intrawave finishes a column of blocks first (B stays near), interwave a row.
template <class Block>
CKH_INLINE void for_blocks(int64_t rows, int64_t columns, int64_t column_step, Block block) {
    if constexpr (kernel::scheduler == Scheduler::intrawave) {
        for (int64_t column = 0; column < columns; column += column_step) {
            for_row_blocks(rows, [&](auto size, int64_t row, int valid) { block(size, row, valid, column); });
        }
    } else {
        for_row_blocks(rows, [&](auto size, int64_t row, int valid) {
            for (int64_t column = 0; column < columns; column += column_step) block(size, row, valid, column);
        });
    }
}

}  // namespace ckh
