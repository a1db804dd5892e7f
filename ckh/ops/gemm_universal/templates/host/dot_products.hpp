// Register block of basic_v1 where columns of B lie along K: so do rows of A then, and the lanes run along K too. Each
// sum is added up over its lanes at the end. Nothing of B is copied.
#pragma once

#include "edges.hpp"

namespace ckh {

template <int Rows>
CKH_INLINE void dot_step(Vec (&sum)[Rows][kVectors], const float* const* rows, const float* const* columns, int64_t k) {
    Vec b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) b[v] = load(columns[v] + k);
#pragma GCC unroll 32
    for (int m = 0; m < Rows; ++m) {
        const Vec a = load(rows[m] + k);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[m][v] += a * b[v];
    }
}

// What is left of K when no whole vector is.
template <int Rows>
CKH_NOINLINE void dot_rest(Vec (&sum)[Rows][kVectors], const float* const* rows, const float* const* columns, int64_t k,
                           int64_t count) {
    for (int v = 0; v < kVectors; ++v) {
        const Vec b = load_first(columns[v] + k, count - k);
        for (int m = 0; m < Rows; ++m) sum[m][v] += load_first(rows[m] + k, count - k) * b;
    }
}

// Rows of A times kVectors columns of B, over `count` elements of K.
template <int Rows>
CKH_NOINLINE void dot_products(const float* const* rows, const float* const* columns, int64_t count, const Destination& at,
                               int valid) {
    constexpr int unrolled = kUnroll * kLanes;
    const Destination to = columns_within<kVectors>(at);
    Vec sum[Rows][kVectors] = {};
    int64_t k = 0;
    for (; k + unrolled <= count; k += unrolled) {
#pragma GCC unroll 4
        for (int step = 0; step < kUnroll; ++step) dot_step(sum, rows, columns, k + step * kLanes);
    }
    for (; k + kLanes <= count; k += kLanes) dot_step(sum, rows, columns, k);
    if constexpr (kernel::pad_k || kTileK % kLanes) {
        if (k < count) {
            Vec rest[Rows][kVectors] = {};
            dot_rest(rest, rows, columns, k, count);
#pragma GCC unroll 32
            for (int m = 0; m < Rows; ++m)
#pragma GCC unroll 8
                for (int v = 0; v < kVectors; ++v) sum[m][v] += rest[m][v];
        }
    }
#pragma GCC unroll 32
    for (int m = 0; m < Rows; ++m) {
        if (m < rows_within<Rows>(valid)) {
            float* row = to.base + to.target[m];
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                if (v < to.columns) row[v] = horizontal_sum(sum[m][v]) + (to.first ? 0.0F : row[v]);
            }
        }
    }
}

}  // namespace ckh
