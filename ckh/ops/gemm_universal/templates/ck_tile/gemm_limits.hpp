// What CK Tile's GEMM kernels of every interface get wrong without refusing it themselves in IsSupportedArgument.
#pragma once

#include <cstdint>

#include "gemm_types.hpp"

namespace ckh {

// K that is contiguous in both operands and not padded is followed by the beginnings of the next rows; else at least one
// operand has zeros there.
constexpr bool has_zeros_beyond_k = kernel::pad_k || !a_is_row_major || b_is_row_major;

// Offsets are 32 bits. Loads reach up to three tiles beyond the last line of an operand, where they must not wrap around
// to its beginning.
inline bool can_be_read(int64_t lines, int64_t tile, int64_t length) {
    const int64_t elements = (lines + 3 * tile) * length;
    return elements <= INT32_MAX && elements * static_cast<int64_t>(sizeof(Element)) <= UINT32_MAX;
}

inline bool is_addressable(const Problem& p) {
    const bool reads_a = a_is_row_major ? can_be_read(p.m, kernel::tile_m, p.k) : can_be_read(p.k, kernel::tile_k, p.m);
    const bool reads_b = b_is_row_major ? can_be_read(p.k, kernel::tile_k, p.n) : can_be_read(p.n, kernel::tile_n, p.k);
    // A store that is masked out goes 2^31 bytes further.
    constexpr int64_t most_stored = INT32_MAX / sizeof(Output);
    return reads_a && reads_b && (p.m + kernel::tile_m) * p.n <= most_stored;
}

// Additions of bf16 are plain global atomics, which nothing stops at the end of C.
inline bool has_rows_beyond_end(const Problem& p) {
    return std::is_same_v<Output, ck_tile::bf16_t> && p.m % kernel::tile_m != 0;
}

}  // namespace ckh
