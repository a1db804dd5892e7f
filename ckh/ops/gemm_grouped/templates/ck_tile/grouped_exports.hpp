// What groups of matrix products are refused for, and the functions that their kernel exports. To be included after
// grouped_launch.hpp.
#pragma once

namespace ckh {

inline const char* sizes_refused(const ckh_gemm_grouped_problem& p) {
    if (p.m < 1 || p.n < 1 || p.k < 1 || p.split_k < 1) return "a size is not positive";
    if (p.groups < 1 || p.groups > max_groups) return "there are fewer than 1 or more than 1024 groups";
    int64_t rows = 0, tiles = 0;
    for (int64_t group = 0; group < p.groups; ++group) {
        if (p.ms[group] < 0 || p.ms[group] > p.m) return "a group has a negative M or more rows than all groups";
        rows += p.ms[group];
        tiles += ck_tile::integer_divide_ceil(p.ms[group], int64_t{kernel::tile_m});
    }
    if (rows != p.m) return "M is not the sum of the groups' M";
    tiles *= ck_tile::integer_divide_ceil(p.n, int64_t{kernel::tile_n}) * p.split_k;
    return tiles > INT32_MAX ? "there are more than 2^31 - 1 tiles" : nullptr;
}

// Columns of a column-major A are as far apart as all groups have rows.
inline const char* groups_refused(const ckh_gemm_grouped_problem& p) {
    if (const char* reason = sizes_refused(p)) return reason;
    if (!a_is_row_major && !can_be_read(p.k, kernel::tile_k, p.m)) return "A is too large for 32-bit offsets";
    for (int64_t group = 0; group < p.groups; ++group) {
        if (p.ms[group] == 0 || (group > 0 && p.ms[group] == p.ms[group - 1])) continue;
        if (const char* reason = interface_refuses(Problem{p.ms[group], p.n, p.k, p.split_k})) return reason;
    }
    return nullptr;
}

inline const char* reason_unsupported(const Problem& p) {
    if (const char* reason = groups_refused(groups_of(p))) return reason;
    return kernel_supports(p) ? nullptr : "CK Tile's IsSupportedArgument refuses it";
}

}  // namespace ckh

#include "exports.hpp"
