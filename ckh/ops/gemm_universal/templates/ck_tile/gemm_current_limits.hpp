// What CK Tile's current GEMM kernels get wrong without refusing it themselves in IsSupportedArgument.
#pragma once

#include "gemm_current_kernel.hpp"
#include "gemm_limits.hpp"

namespace ckh {

// Sixteen-bit results are added in pairs; a kernel that stores them one by one has no code to add.
constexpr bool can_split = sizeof(Output) != 2 || EpilogueClass::GetVectorSizeC() % 2 == 0;

constexpr bool is_whole(int64_t extent, int64_t tile, bool is_padded, int64_t width) {
    return (is_padded || extent % tile == 0) && extent % width == 0;
}

// Some trees take any remainder of whole 32-bit words, whatever the tile, and do not require B's vectors along K. A
// vector that begins within a line and ends beyond it holds elements of the next line.
inline bool has_whole_loads(const Problem& p) {
    const int64_t depth = p.split_k * kernel::tile_k;
    const bool a = a_is_row_major ? is_whole(p.k, depth, kernel::pad_k, Gemm::GetVectorSizeA())
                                  : is_whole(p.m, kernel::tile_m, kernel::pad_m, Gemm::GetVectorSizeA());
    const bool b = b_is_row_major ? is_whole(p.n, kernel::tile_n, kernel::pad_n, Gemm::GetVectorSizeB())
                                  : is_whole(p.k, depth, kernel::pad_k, Gemm::GetVectorSizeB());
    return a && b;
}

// compv6 takes three tiles of K where there is one. Where this matters, has_whole_loads requires parts of whole tiles.
inline bool reads_next_rows(const Problem& p) {
    return kernel::pipeline == Pipeline::compv6 && !has_zeros_beyond_k && p.k / p.split_k <= kernel::tile_k;
}

inline const char* split_refused(const Problem& p) {
    if (!can_split) return "parts of K cannot be added to 16-bit results that are stored one by one";
    if (!kernel::pads_added_rows && has_rows_beyond_end(p)) {
        return "parts of K would be added to bf16 rows beyond the end of C";
    }
    if (p.split_k > UINT16_MAX) return "K is split into more than 2^16 - 1 parts";
    // Parts are whole warp tiles, and the last has what is left.
    if (p.k <= (p.split_k - 1) * kernel::warp_tile_k) return "split-K leaves nothing for the last part";
    return nullptr;
}

inline const char* interface_refuses(const Problem& p) {
    if (!is_addressable(p)) return "a matrix is too large for 32-bit offsets";
    if (!has_whole_loads(p)) return "a line of A or B ends within a vector, or within a tile that is not padded";
    if (p.split_k > 1) {
        if (const char* reason = split_refused(p)) return reason;
    }
    return reads_next_rows(p) ? "compv6 without padding of K reads beyond it if it has 1 tile" : nullptr;
}

}  // namespace ckh
