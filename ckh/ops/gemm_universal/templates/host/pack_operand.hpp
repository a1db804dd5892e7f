// Copies of stretches of A and B, in the order in which register blocks read them.
#pragma once

#include "transpose.hpp"

namespace ckh {

// to[i][j] = from[i][j] for `rows` rows of `columns` floats.
template <int Width>
CKH_NOINLINE void copy_rows(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows,
                            int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) copy_row<Width>(to + i * to_stride, from + i * from_stride, columns);
}

// to[j][i] = from[i][j] for `rows` rows of `columns` floats. Writes whole vectors, so rows of `to` have room for them.
template <int Width>
CKH_NOINLINE void copy_transposed(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows,
                                  int64_t columns) {
    for (int64_t i = 0; i < rows; i += kLanes) {
        const float* source = from + i * from_stride;
        const int64_t last = minimum(kLanes, rows - i) - 1;
        int64_t j = 0;
        for (; j + Width <= columns; j += kLanes) {
            Vec square[kLanes];
#pragma GCC unroll 16
            for (int64_t lane = 0; lane < kLanes; ++lane) {
                square[lane] = load(source + minimum(lane, last) * from_stride + j);
            }
            transpose(square);
            const int64_t steps = minimum(kLanes, columns - j);
            float* target = to + j * to_stride + i;
            if (steps == kLanes) {
#pragma GCC unroll 16
                for (int64_t step = 0; step < kLanes; ++step) store(target + step * to_stride, square[step]);
            } else {
                for (int64_t step = 0; step < steps; ++step) store(target + step * to_stride, square[step]);
            }
        }
        for (; j < columns; ++j) {
            for (int64_t lane = 0; lane < minimum(kLanes, rows - i); ++lane) {
                to[j * to_stride + i + lane] = source[lane * from_stride + j];
            }
        }
    }
}

}  // namespace ckh
