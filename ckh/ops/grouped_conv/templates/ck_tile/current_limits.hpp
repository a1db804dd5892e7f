// What CK Tile's current kernels get wrong without refusing it themselves in IsSupportedArgument.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "types.hpp"

namespace ckh {

// Backward data is one GEMM for each position of an input element within the strides; the shortest reduction of these
// has this many taps of the filter along one axis.
constexpr int64_t fewest_taps(int64_t taps, int64_t stride, int64_t dilation) {
    const int64_t gemms = stride / std::gcd(stride, dilation);
    return divide_up(taps - std::min(gemms, taps) + 1, gemms);
}

inline int64_t shortest_reduction(const Problem& p) {
    if constexpr (kernel::variant == Variant::forward) return p.c / p.g * p.z * p.y * p.x;
    if constexpr (kernel::variant == Variant::bwd_weight) return p.n * p.do_ * p.ho * p.wo;
    return p.k / p.g * fewest_taps(p.z, p.stride_d, p.dilation_d) * fewest_taps(p.y, p.stride_h, p.dilation_h) *
           fewest_taps(p.x, p.stride_w, p.dilation_w);
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

inline const char* interface_refuses(const Problem& p) {
    if (!is_addressable(p)) return "a tensor that CK Tile does not cut has more than 2^31 - 1 bytes";
    // CK Tile says so in its backward weight kernel, the only one that checks it.
    if (kernel::pipeline == Pipeline::compv6 &&
        shortest_reduction(p) <= static_cast<int64_t>(kernel::split_k) * kernel::tile_k) {
        return "compv6 gives wrong results when its main loop takes a single step";
    }
    return nullptr;
}

}  // namespace ckh
