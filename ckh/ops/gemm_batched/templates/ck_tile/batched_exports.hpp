// What a batch of matrix products is refused for, and the functions that its kernel exports. To be included after
// batched_launch.hpp.
#pragma once

namespace ckh {

constexpr ck_tile::index_t width_c = EpilogueOf<kernel::epilogue, Operation::set>::Class::GetVectorSizeC();

// Every line begins at a whole vector.
inline bool is_aligned(int64_t leading, int64_t stride, ck_tile::index_t width) {
    return leading % width == 0 && stride % width == 0;
}

inline bool has_short_lines(const ckh_gemm_batched_problem& p) {
    return p.lda < (a_is_row_major ? p.k : p.m) || p.ldb < (b_is_row_major ? p.n : p.k) || p.ldc < p.n;
}

// Offsets within a matrix and of the last matrix are 32 bits each.
inline bool is_reached(const ckh_gemm_batched_problem& p) {
    const int64_t last = p.batch - 1;
    constexpr int64_t lines_a = a_is_row_major ? kernel::tile_m : kernel::tile_k;
    constexpr int64_t lines_b = b_is_row_major ? kernel::tile_k : kernel::tile_n;
    const bool reads_a = can_be_read(a_is_row_major ? p.m : p.k, lines_a, p.lda);
    const bool reads_b = can_be_read(b_is_row_major ? p.k : p.n, lines_b, p.ldb);
    const bool stores = (p.m + kernel::tile_m) * p.ldc <= static_cast<int64_t>(INT32_MAX / sizeof(Output));
    return reads_a && reads_b && stores && last * p.stride_a <= INT32_MAX && last * p.stride_b <= INT32_MAX &&
           last * p.stride_c <= INT32_MAX;
}

inline const char* batch_refused(const ckh_gemm_batched_problem& p) {
    if (p.m < 1 || p.n < 1 || p.k < 1 || p.split_k < 1 || p.batch < 1) return "a size is not positive";
    if (p.batch > UINT16_MAX) return "a batch has more than 2^16 - 1 products";
    if (has_short_lines(p)) return "a leading dimension is less than the length of a line";
    if (p.batch > 1 && p.stride_c < (p.m - 1) * p.ldc + p.n) return "matrices of the result overlap";
    if (!is_aligned(p.lda, p.stride_a, width_a) || !is_aligned(p.ldb, p.stride_b, width_b) ||
        !is_aligned(p.ldc, p.stride_c, width_c)) {
        return "a line or a matrix begins within a vector";
    }
    return is_reached(p) ? nullptr : "a matrix is too large, or too far from the first, for 32-bit offsets";
}

inline const char* reason_unsupported(const Problem& p) {
    if (const char* reason = batch_refused(batch_of(p))) return reason;
    if (const char* reason = interface_refuses(p)) return reason;
    return kernel_supports(p) ? nullptr : "CK Tile's IsSupportedArgument refuses it";
}

}  // namespace ckh

#include "exports.hpp"
