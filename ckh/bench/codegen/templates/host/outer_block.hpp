// Register block of a dense group: every element of an A column times every vector of a B row.
#pragma once

#include "blocks.hpp"

namespace ckh {

// `Steps` steps of the reduction. All B vectors of the steps are held while the rows of A pass by one after the other,
// so that a row's address is fetched once for all steps.
template <int Steps, int Rows, int Vectors, int AStride>
CKH_INLINE void outer_steps(Vec (&sum)[Rows][Vectors], const float* const* rows, const float* a, const float* b,
                            int64_t b_stride, int64_t k) {
    Vec row_b[Steps][Vectors];
#pragma GCC unroll 4
    for (int s = 0; s < Steps; ++s)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) row_b[s][v] = load(b + (k + s) * b_stride + v * kLanes);
#pragma GCC unroll 32
    for (int m = 0; m < Rows; ++m) {
        const float* row = AStride ? a + m * AStride : rows[m];
#pragma GCC unroll 4
        for (int s = 0; s < Steps; ++s)
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) sum[m][v] += row[k + s] * row_b[s][v];
    }
}

// Steps whose B vectors fit next to the sums; the block repeats them until `kUnroll` steps are done.
template <int Rows, int Vectors>
constexpr int steps_at_once() {
    const int room = (kernel::registers - 2 - Rows * Vectors) / Vectors;
    return room < 1 ? 1 : room < kUnroll ? room : kUnroll;
}

// `rows` holds the addresses of the rows for every segment, kTableRows apart; a packed A has the stride AStride instead.
template <int Rows, int Vectors, int AStride>
CKH_NOINLINE void outer_block(const float* const* rows, const float* a, const Segment* segments, int64_t count,
                                           const float* b, int64_t b_stride, const Destination& to, int valid) {
    constexpr int steps = steps_at_once<Rows, Vectors>();
    constexpr int unrolled = (kUnroll + steps - 1) / steps * steps;
    Vec sum[Rows][Vectors] = {};
    for (int64_t s = 0; s < count; ++s) {
        const Segment& segment = segments[s];
        const float* const* table = rows + s * kTableRows;
        const float* from = b + segment.b;
        if constexpr (kPrefetches) {
            if (s + 1 < count)
                for (int m = 0; m < valid; ++m) __builtin_prefetch(table[kTableRows + m]);
        }
        int64_t k = 0;
        for (; k + unrolled <= segment.length; k += unrolled) {
#pragma GCC unroll 4
            for (int i = 0; i < unrolled; i += steps) {
                outer_steps<steps, Rows, Vectors, AStride>(sum, table, a, from, b_stride, k + i);
            }
        }
        for (; k < segment.length; ++k) outer_steps<1, Rows, Vectors, AStride>(sum, table, a, from, b_stride, k);
    }
    write_out(sum, to, valid);
}

}  // namespace ckh
