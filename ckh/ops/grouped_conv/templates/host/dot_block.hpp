// Register block of forward's basic_v1: rows of A and rows of the filter both lie along the reduction, so the lanes run
// along it too, and each sum is added up over its lanes at the end. Nothing needs packing.
#pragma once

#include "blocks.hpp"

namespace ckh {

// `filters[v]` is filter v of the block; segments give its offset.
template <int Rows, int Filters>
CKH_NOINLINE void dot_block(const float* const* rows, const Segment* segments, int64_t count,
                                         const float* const* filters, const Destination& to, int valid) {
    Vec sum[Rows][Filters] = {};
    for (int64_t s = 0; s < count; ++s) {
        const Segment& segment = segments[s];
        const float* const* table = rows + s * kTableRows;
        const float* filter[Filters];
#pragma GCC unroll 8
        for (int v = 0; v < Filters; ++v) filter[v] = filters[v] + segment.b;
        int64_t k = 0;
        for (; k + kLanes <= segment.length; k += kLanes) {
            Vec b[Filters];
#pragma GCC unroll 8
            for (int v = 0; v < Filters; ++v) b[v] = load(filter[v] + k);
#pragma GCC unroll 32
            for (int m = 0; m < Rows; ++m) {
                const Vec a = load(table[m] + k);
#pragma GCC unroll 8
                for (int v = 0; v < Filters; ++v) sum[m][v] += a * b[v];
            }
        }
        if (k < segment.length) {
            const IntVec mask = mask_first(static_cast<int>(segment.length - k));
#pragma GCC unroll 32
            for (int m = 0; m < Rows; ++m) {
                const Vec a = masked(load(table[m] + k), mask);
#pragma GCC unroll 8
                for (int v = 0; v < Filters; ++v) sum[m][v] += a * masked(load(filter[v] + k), mask);
            }
        }
    }
#pragma GCC unroll 32
    for (int m = 0; m < Rows; ++m) {
        if (m < valid) {
            float* row = to.base + to.target[m];
#pragma GCC unroll 8
            for (int v = 0; v < Filters; ++v) {
                if (v < to.columns) row[v] = horizontal_sum(sum[m][v]) + (to.first ? 0.0F : row[v]);
            }
        }
    }
}

}  // namespace ckh
