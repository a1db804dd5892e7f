// What padding is on this device: code for the rest of an axis that the tile does not divide. A kernel that does not pad
// an axis has none, and its loops along that axis have constant ends.
#pragma once

#include "blocks.hpp"

namespace ckh {

// Register blocks that reach beyond a tile leave an edge even where N is a multiple of the tile.
constexpr bool kHasEdgeN = kernel::pad_n || kernel::tile_n % kColumns != 0;

// Steps of the reduction in a tile. `length` is the tile's share of K.
CKH_INLINE int64_t steps_of(int64_t length) { return kernel::pad_k ? length : kTileK; }

// How much of a register block of `Rows` rows and `Columns` columns exists.
template <int Rows>
CKH_INLINE int rows_within(int valid) {
    return kernel::pad_m ? valid : Rows;
}

template <int Columns>
CKH_INLINE Destination columns_within(const Destination& to) {
    return {to.base, to.target, kHasEdgeN ? to.columns : Columns, kLanes, to.first};
}

// Rows that the last register block of a whole tile has.
constexpr int kLastRows = kTileM - (ceil_div(kTileM, kRows) - 1) * kRows;

// Calls block(Constant<R>, row, valid) for the register blocks that begin within `rows` rows. Without padding R is
// what is there; with it the last block takes the least of four R that holds what is left.
template <class Block>
CKH_INLINE void for_row_ranges(int64_t rows, Block block) {
    if constexpr (kernel::pad_m) {
        if (rows == 1) return block(Constant<1>{}, int64_t{0}, 1);
        for_row_blocks(rows, block);
    } else {
        for (int64_t row = 0; row < kTileM - kLastRows; row += kRows) block(Constant<kRows>{}, row, kRows);
        block(Constant<kLastRows>{}, int64_t{kTileM - kLastRows}, kLastRows);
    }
}

// Visits the register blocks of a tile: intrawave finishes a column of blocks first (B stays near), interwave a row.
template <class Block>
CKH_INLINE void for_register_blocks(int64_t rows, int64_t columns, int64_t column_step, Block block) {
    const int64_t end = kHasEdgeN ? columns : kTileN;
    if constexpr (kernel::scheduler == Scheduler::intrawave) {
        for (int64_t column = 0; column < end; column += column_step) {
            for_row_ranges(rows, [&](auto size, int64_t row, int valid) { block(size, row, valid, column); });
        }
    } else {
        for_row_ranges(rows, [&](auto size, int64_t row, int valid) {
            for (int64_t column = 0; column < end; column += column_step) block(size, row, valid, column);
        });
    }
}

}  // namespace ckh
