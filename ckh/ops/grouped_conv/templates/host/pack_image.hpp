// Packs stretches of the source image as rows along the reduction.
#pragma once

#include "image.hpp"

namespace ckh {

CKH_INLINE int64_t clamp(int64_t value, int64_t low, int64_t high) { return minimum(maximum(value, low), high); }

// Without groups or horizontal dilation: the taps of one row of the filter lie next to each other in the image,
// so they are copied as one run, however few channels there are (forward and bwd_weight). Packs steps [begin, end) of the reduction.
template <int Width>
void pack_runs(float* to, int64_t stride, const Pixels& pixels, const Problem& p, const float* image, int64_t row,
                      int64_t rows, int64_t begin, int64_t end) {
    const int64_t run = p.x * p.c;
    for (int64_t at = begin; at < end;) {
        const int64_t offset = at % run;
        const int64_t length = minimum(run - offset, end - at);
        const Tap& tap = pixels.taps[at / run * p.x];
        const float* from = image + tap.source + offset;
        for (int64_t i = 0; i < rows; ++i) {
            const int64_t w = pixels.w[row + i];
            const bool inside = static_cast<uint64_t>(pixels.h[row + i] + tap.h) < static_cast<uint64_t>(pixels.size_h) &&
                                static_cast<uint64_t>(pixels.d[row + i] + tap.d) < static_cast<uint64_t>(pixels.size_d);
            const int64_t first = inside ? clamp(-w * p.c - offset, 0, length) : length;
            const int64_t last = inside ? clamp((pixels.size_w - w) * p.c - offset, first, length) : length;
            float* packed = to + i * stride + at - begin;
            for (int64_t k = 0; k < first; ++k) packed[k] = 0.0F;
            copy_row<Width>(packed + first, from + pixels.source[row + i] + first, last - first);
            for (int64_t k = last; k < length; ++k) packed[k] = 0.0F;
        }
        at += length;
    }
}

}  // namespace ckh
