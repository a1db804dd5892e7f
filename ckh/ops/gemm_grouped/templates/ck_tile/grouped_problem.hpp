// Matrix products that share N and K as the caller states them, C_g (m_g x n) = A_g (m_g x k) x B_g (k x n). The rows of all
// A_g are one matrix, and those of all C_g; the B_g follow one another.
#pragma once

#include "gemm_problem.hpp"

// The first members are those of one product whose m is the sum of all, which is all that gemm_universal's headers read.
struct ckh_gemm_grouped_problem : ckh_gemm_problem {
    int64_t groups;
    int64_t ms[1024];
};

namespace ckh {

constexpr int64_t max_groups = sizeof(ckh_gemm_grouped_problem::ms) / sizeof(int64_t);

// Exported functions take the address of a Problem, which is that of the groups.
inline const ckh_gemm_grouped_problem& groups_of(const Problem& p) {
    return static_cast<const ckh_gemm_grouped_problem&>(p);
}

}  // namespace ckh
