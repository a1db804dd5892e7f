// A batch of matrix products as the caller states it, C_i (m x n) = A_i (m x k) x B_i (k x n) for i < batch. Leading
// dimensions and strides, between consecutive matrices, are in elements.
#pragma once

#include "gemm_problem.hpp"

// The first members are those of one product, which is all that gemm_universal's headers read.
struct ckh_gemm_batched_problem : ckh_gemm_problem {
    int64_t batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
};

namespace ckh {

// Exported functions take the address of a Problem, which is that of a batch.
inline const ckh_gemm_batched_problem& batch_of(const Problem& p) {
    return static_cast<const ckh_gemm_batched_problem&>(p);
}

}  // namespace ckh
