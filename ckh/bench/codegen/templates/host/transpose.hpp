// Transposes a square of kLanes x kLanes floats in registers, by log2(kLanes) rounds of two-vector shuffles.
#pragma once

#include "simd.hpp"

namespace ckh {

template <int... I>
struct Lanes {};
template <int N, int... I>
struct MakeLanes : MakeLanes<N - 1, N - 1, I...> {};
template <int... I>
struct MakeLanes<0, I...> {
    using Type = Lanes<I...>;
};

// Swaps the off-diagonal halves of each 2*Half x 2*Half square: lanes whose `Half` bit is set move between the two rows.
template <int Half, int... I>
CKH_INLINE void exchange(Vec& upper, Vec& lower, Lanes<I...>) {
    const Vec a = upper;
    const Vec b = lower;
    upper = __builtin_shufflevector(a, b, ((I & Half) ? kLanes + I - Half : I)...);
    lower = __builtin_shufflevector(a, b, ((I & Half) ? kLanes + I : I + Half)...);
}

template <int Half>
CKH_INLINE void transpose_round(Vec (&rows)[kLanes]) {
#pragma GCC unroll 16
    for (int pair = 0; pair < kLanes / 2; ++pair) {
        const int upper = (pair / Half) * 2 * Half + pair % Half;
        exchange<Half>(rows[upper], rows[upper + Half], typename MakeLanes<kLanes>::Type{});
    }
    if constexpr (Half > 1) transpose_round<Half / 2>(rows);
}

CKH_INLINE void transpose(Vec (&rows)[kLanes]) { transpose_round<kLanes / 2>(rows); }

}  // namespace ckh
