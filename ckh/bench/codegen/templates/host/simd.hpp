// One SIMD vector of floats, by the GCC/Clang vector extensions: no intrinsics header, which would double compile time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CKH_INLINE inline __attribute__((always_inline))
#define CKH_NOINLINE __attribute__((noinline))

namespace ckh {

constexpr int kLanes = kernel::vector_bytes / static_cast<int>(sizeof(float));

typedef float Vec __attribute__((vector_size(kernel::vector_bytes)));
typedef int32_t IntVec __attribute__((vector_size(kernel::vector_bytes)));
typedef float UnalignedVec __attribute__((vector_size(kernel::vector_bytes), aligned(4), may_alias));

CKH_INLINE Vec load(const float* from) { return *reinterpret_cast<const UnalignedVec*>(from); }

CKH_INLINE void store(float* to, Vec value) { *reinterpret_cast<UnalignedVec*>(to) = value; }

// A run of `Width` floats: the unit in which the ends of rows are moved.
template <int Width>
struct Chunk {
    typedef float Type __attribute__((vector_size(Width * sizeof(float)), aligned(4), may_alias));
};
template <>
struct Chunk<1> {
    typedef float Type __attribute__((aligned(4), may_alias));
};

// Copies `count` floats: whole vectors, then chunks of `Width`, then single floats.
template <int Width>
CKH_INLINE void copy_row(float* to, const float* from, int64_t count) {
    using Unit = typename Chunk<Width>::Type;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    for (; i + Width <= count; i += Width) *reinterpret_cast<Unit*>(to + i) = *reinterpret_cast<const Unit*>(from + i);
    for (; i < count; ++i) to[i] = from[i];
}

// The first `count` lanes of memory; the others are zero and are not read.
CKH_INLINE Vec load_first(const float* from, int64_t count) {
    if (count >= kLanes) return load(from);
    alignas(kernel::vector_bytes) float lanes[kLanes] = {};
    if (count > 0) copy_row<kernel::vector_c>(lanes, from, count);
    return load(lanes);
}

CKH_INLINE void store_first(float* to, Vec value, int64_t count) {
    if (count >= kLanes) return store(to, value);
    if (count <= 0) return;
    alignas(kernel::vector_bytes) float lanes[kLanes];
    store(lanes, value);
    copy_row<kernel::vector_c>(to, lanes, count);
}

CKH_INLINE IntVec lane_numbers() {
    IntVec numbers{};
    for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = lane;
    return numbers;
}

// All bits set in the first `count` lanes.
CKH_INLINE IntVec mask_first(int count) { return lane_numbers() < count; }

CKH_INLINE Vec masked(Vec value, IntVec mask) { return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(value) & mask); }

// Lane i of the result is lane index[i] of the value.
CKH_INLINE Vec permute(Vec value, IntVec index) {
#if defined(__clang__)
    Vec result{};
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = value[index[lane]];
    return result;
#else
    return __builtin_shuffle(value, index);
#endif
}

typedef float Vec4 __attribute__((vector_size(16)));
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec16 __attribute__((vector_size(64)));

CKH_INLINE float horizontal_sum(Vec4 v) {
    const Vec4 pairs = v + __builtin_shufflevector(v, v, 2, 3, 0, 1);
    return pairs[0] + pairs[1];
}

CKH_INLINE float horizontal_sum(Vec8 v) {
    return horizontal_sum(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}

CKH_INLINE float horizontal_sum(Vec16 v) {
    return horizontal_sum(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                          __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
}

CKH_INLINE int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }
CKH_INLINE int64_t maximum(int64_t a, int64_t b) { return a > b ? a : b; }
CKH_INLINE int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace ckh
