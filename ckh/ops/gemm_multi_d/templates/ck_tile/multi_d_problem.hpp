// The matrix product with further tensors as the caller states it: E (m x n) = function(A (m x k) x B (k x n), D_0, D_1).
#pragma once

#include <cstdint>

extern "C" {
struct ckh_multi_d_problem {
    int64_t m, n, k, split_k;
    int64_t d_strides[2];  // elements between the rows of each D; 0: all rows are the same vector
};
}

namespace ckh {

using Problem = ckh_multi_d_problem;

}  // namespace ckh
