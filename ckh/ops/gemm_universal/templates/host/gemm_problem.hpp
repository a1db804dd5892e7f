// The matrix product as the caller states it, C (m x n) = A (m x k) x B (k x n), and what a kernel refuses.
#pragma once

#include "register_tile.hpp"

extern "C" {
struct ckh_gemm_problem {
    int64_t m, n, k, split_k;
};
}

namespace ckh {

using GemmProblem = ckh_gemm_problem;

inline const char* reason_unsupported(const GemmProblem& p) {
    if (p.m < 1 || p.n < 1 || p.k < 1) return "a size is not positive";
    if (p.split_k != 1) return "the host does not split K";
    if (!kernel::pad_m && p.m % kernel::tile_m) return "M is not a multiple of tile_m, nor padded";
    if (!kernel::pad_n && p.n % kernel::tile_n) return "N is not a multiple of tile_n, nor padded";
    if (!kernel::pad_k && p.k % kernel::tile_k) return "K is not a multiple of tile_k, nor padded";
    return nullptr;
}

}  // namespace ckh
