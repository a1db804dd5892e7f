// Register block of all pipelines that have rows of B: every element of an A column times every vector of a B row.
#pragma once

#include "edges.hpp"
#include "nest.hpp"
#include "outer_block.hpp"

namespace ckh {

// Floats between rows along K of a packed, row-major A, and between columns along M of a column-major one. They are no
// power of two, lest the rows of a block meet in few sets of the cache.
constexpr int kRowStride = kTileK + kLanes;
constexpr int kColumnStride = (kTableRows / kLanes + 1) * kLanes;

// A column-major A: the rows of a block lie next to each other.
template <int Steps, int Rows>
CKH_INLINE void column_steps(Vec (&sum)[Rows][kVectors], const float* a, int64_t a_stride, const float* b,
                             int64_t b_stride, int64_t k) {
#pragma GCC unroll 4
    for (int s = 0; s < Steps; ++s) {
        const float* column = a + (k + s) * a_stride;
        Vec row_b[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) row_b[v] = load(b + (k + s) * b_stride + v * kLanes);
#pragma GCC unroll 32
        for (int m = 0; m < Rows; ++m)
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sum[m][v] += column[m] * row_b[v];
    }
}

// Where a block finds A: addresses of its rows for a row-major A in place, else the first element and, for a
// column-major one, the distance of its columns.
struct BlockOfA {
    const float* const* rows;
    const float* first;
    int64_t stride;
};

template <int Steps, int Rows>
CKH_INLINE void product_steps(Vec (&sum)[Rows][kVectors], const BlockOfA& a, const float* b, int64_t b_stride, int64_t k) {
    if constexpr (kernel::a_row_major) {
        outer_steps<Steps, Rows, kVectors, kPacksA ? kRowStride : 0>(sum, a.rows, a.first, b, b_stride, k);
    } else {
        column_steps<Steps>(sum, a.first, kPacksA ? kColumnStride : a.stride, b, b_stride, k);
    }
}

template <int Rows>
CKH_NOINLINE void product_block(const BlockOfA& at, const float* b, int64_t b_step, int64_t length, const Destination& to,
                                int valid) {
    constexpr int steps = kernel::a_row_major ? steps_at_once<Rows, kVectors>() : kUnroll;
    constexpr int unrolled = ceil_div(kUnroll, steps) * steps;
    const BlockOfA a = at;
    const int64_t b_stride = kBInPlace ? b_step : kColumns;
    const int64_t count = steps_of(length);
    Vec sum[Rows][kVectors] = {};
    int64_t k = 0;
    for (; k + unrolled <= count; k += unrolled) {
#pragma GCC unroll 4
        for (int i = 0; i < unrolled; i += steps) product_steps<steps>(sum, a, b, b_stride, k + i);
    }
    if constexpr (kernel::pad_k || kTileK % unrolled) {
        for (; k < count; ++k) product_steps<1>(sum, a, b, b_stride, k);
    }
    write_out(sum, columns_within<kColumns>(to), rows_within<Rows>(valid));
}

}  // namespace ckh
