// Register blocks of bwd_weight, whose reduction runs over pixels: both operands lie across it.
#pragma once

#include "blocks.hpp"
#include "merged_block.hpp"

namespace ckh {

// Dense: rows are output channels, read at a + k * a_stride; columns are taken from row k of B at b[k] + column.
template <int Rows, int Vectors>
CKH_NOINLINE void weight_block(const float* a, int64_t a_stride, const float* const* b, int64_t column,
                                            int64_t count, const Destination& to, int valid) {
    Vec sum[Rows][Vectors] = {};
#pragma GCC unroll 2
    for (int64_t k = 0; k < count; ++k) {
        const float* from = b[k] + column;
        if constexpr (kPrefetches) __builtin_prefetch(a + 8 * a_stride);
        Vec row_b[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) row_b[v] = load(from + v * kLanes);
#pragma GCC unroll 32
        for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) sum[m][v] += a[m] * row_b[v];
        }
        a += a_stride;
    }
    write_out(sum, to, valid);
}

// Merged groups: a row is one (tap, input channel of the group); its sources are at sources[row][k].
template <int Rows, int Vectors, bool Permutes>
CKH_NOINLINE void merged_weight_block(const float* const* const* sources, const IntVec* lanes,
                                                   const float* const* gradients, int64_t count, const Merging& merging,
                                                   int64_t gradient_first, const Destination& to, int valid) {
    Vec sum[Rows][Vectors] = {};
    for (int64_t k = 0; k < count; ++k) {
        Vec gradient[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) gradient[v] = load(gradients[k] + gradient_first + v * merging.target_step);
#pragma GCC unroll 32
        for (int m = 0; m < Rows; ++m) {
            const float* row = sources[m][k] + merging.first;
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) {
                const Vec source = load(row + v * merging.source_step);
                sum[m][v] += (Permutes ? permute(source, lanes[m]) : source) * gradient[v];
            }
        }
    }
    write_out(sum, to, valid);
}

}  // namespace ckh
