// What later CK Tile makes of a convolution's sizes: backward data is several GEMMs, and tensors are cut until they can
// be addressed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "types.hpp"

namespace ckh {

struct Range {
    int64_t shortest, longest;
};

// Backward data is one GEMM for each position of an input element within the strides; these have from so many to so many
// taps of the filter along one axis, two numbers at most.
constexpr Range taps_of_gemms(int64_t taps, int64_t stride, int64_t dilation) {
    const int64_t gemms = stride / std::gcd(stride, dilation);
    return {divide_up(taps - std::min(gemms, taps) + 1, gemms), divide_up(taps, gemms)};
}

// Calls test with the length of every reduction, and says whether all pass.
template <class Test>
bool every_reduction(const Problem& p, Test test) {
    if constexpr (kernel::variant == Variant::forward) return test(p.c / p.g * p.z * p.y * p.x);
    if constexpr (kernel::variant == Variant::bwd_weight) return test(p.n * p.do_ * p.ho * p.wo);
    const Range z = taps_of_gemms(p.z, p.stride_d, p.dilation_d), y = taps_of_gemms(p.y, p.stride_h, p.dilation_h),
                x = taps_of_gemms(p.x, p.stride_w, p.dilation_w);
    for (const int64_t i : {z.shortest, z.longest})
        for (const int64_t j : {y.shortest, y.longest})
            for (const int64_t k : {x.shortest, x.longest})
                if (!test(p.k / p.g * i * j * k)) return false;
    return true;
}

inline Range reductions(const Problem& p) {
    Range range{INT64_MAX, 0};
    every_reduction(p, [&](int64_t length) {
        range = {std::min(range.shortest, length), std::max(range.longest, length)};
        return true;
    });
    return range;
}

// Forward and backward data cut the batch until a cut's tensors can be addressed with 32 bits. They count four bytes an
// element when they cut, and do not cut at all for an explicit GEMM, whose kernel takes the cut for a part of K.
inline bool is_addressable(const Problem& p) {
    constexpr bool is_cut = kernel::variant != Variant::bwd_weight && !kernel::explicit_gemm;
    constexpr bool counts_four = kernel::variant == Variant::forward && kernel::explicit_gemm;
    constexpr int64_t element_bytes = counts_four ? 4 : sizeof(kernel::Element);
    constexpr int64_t filter_bytes = kernel::two_stage ? sizeof(Accumulator) : sizeof(kernel::Element);
    const int64_t cuts = is_cut ? p.n : 1;
    const int64_t larger = std::max(input_elements(p), output_elements(p)) / cuts;
    return larger * element_bytes <= INT32_MAX && filter_elements(p) * filter_bytes <= INT32_MAX;
}

}  // namespace ckh
