// The convolution as the caller states it, and what follows from it.
#pragma once

#include "simd.hpp"

extern "C" {
struct ckh_conv_problem {
    int64_t n, c, k, g;
    int64_t di, hi, wi;
    int64_t z, y, x;
    int64_t stride_d, stride_h, stride_w;
    int64_t pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w;
    int64_t do_, ho, wo;
};
}

namespace ckh {

using Problem = ckh_conv_problem;

CKH_INLINE int64_t taps_of(const Problem& p) { return p.z * p.y * p.x; }
CKH_INLINE int64_t input_pixels(const Problem& p) { return p.n * p.di * p.hi * p.wi; }
CKH_INLINE int64_t output_pixels(const Problem& p) { return p.n * p.do_ * p.ho * p.wo; }

// Lanes of one vector may span several groups when the groups are this narrow; 1 means they may not.
CKH_INLINE int64_t groups_per_vector(const Problem& p) {
    if (p.g == 1) return 1;
    const int64_t per_vector = kLanes / maximum(p.c / p.g, p.k / p.g);
    return per_vector < 2 ? 1 : minimum(per_vector, p.g);
}

}  // namespace ckh
