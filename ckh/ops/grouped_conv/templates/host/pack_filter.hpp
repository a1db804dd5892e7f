// Packs the filter into panels of kColumns columns, one row per step of the reduction.
#pragma once

#include "blocks.hpp"
#include "image.hpp"
#include "merged_block.hpp"
#include "transpose.hpp"

namespace ckh {

// Forward: filters are rows along the reduction; panel[k][j] = filter[j][k]. `filters` that exist, the others are zero.
CKH_NOINLINE inline void pack_transposed(float* panel, const float* filter, int64_t filter_stride, int64_t filters, int64_t length) {
    for (int64_t j = 0; j < kColumns; j += kLanes) {
        int64_t k = 0;
        for (; k + kernel::vector_b <= length; k += kLanes) {
            Vec square[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                square[i] = j + i < filters ? load(filter + (j + i) * filter_stride + k) : Vec{};
            }
            transpose(square);
            const int64_t rows = minimum(kLanes, length - k);
            if (rows == kLanes) {
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i) store(panel + (k + i) * kColumns + j, square[i]);
            } else {
                for (int i = 0; i < rows; ++i) store(panel + (k + i) * kColumns + j, square[i]);
            }
        }
        for (; k < length; ++k) {
            for (int i = 0; i < kLanes; ++i) {
                panel[k * kColumns + j + i] = j + i < filters ? filter[(j + i) * filter_stride + k] : 0.0F;
            }
        }
    }
}

// bwd_data: columns are input channels, which lie next to each other already.
inline void pack_rows(float* panel, const float* filter, int64_t row_stride, int64_t columns, int64_t length) {
    const int64_t present = minimum(columns, kColumns);
    for (int64_t k = 0; k < length; ++k) copy_row<kernel::vector_b>(panel + k * kColumns, filter + k * row_stride, present);
}

// Merged groups: lane j of vector v is destination channel j % per_group of group v * groups + j / per_group.
// Packs `count` whole taps, for all source channels of a group each.
CKH_NOINLINE inline void pack_merged(float* panel, const float* filter, const Problem& p, const Merging& merging, int64_t first_vector,
                        const Tap* taps, int64_t count) {
    const int64_t in = p.c / p.g;
    const int64_t out = p.k / p.g;
    const int64_t source = kIsBackwardData ? out : in;
    const int64_t target = kIsBackwardData ? in : out;
    const int64_t step_k = taps_of(p) * in;  // between output channels
    for (int64_t column = 0; column < kColumns; ++column) {
        const int64_t lane = column % kLanes;
        const int64_t group = (first_vector + column / kLanes) * merging.groups + lane / target;
        float* to = panel + column;
        if (lane / target >= merging.groups || group >= p.g) {
            for (int64_t i = 0; i < count * source; ++i) to[i * kColumns] = 0.0F;
            continue;
        }
        const float* own = filter + group * out * step_k + lane % target * (kIsBackwardData ? 1 : step_k);
        for (int64_t t = 0; t < count; ++t) {
            const float* from = own + taps[t].index * in;
            for (int64_t r = 0; r < source; ++r, to += kColumns) *to = from[r * (kIsBackwardData ? step_k : 1)];
        }
    }
}

}  // namespace ckh
