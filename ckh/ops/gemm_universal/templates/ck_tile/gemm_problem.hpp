// The matrix product as the caller states it, C (m x n) = A (m x k) x B (k x n). The same structure as for the host
// device.
#pragma once

#include <cstdint>

extern "C" {
struct ckh_gemm_problem {
    int64_t m, n, k, split_k;
};
}

namespace ckh {

using Problem = ckh_gemm_problem;

// What a launch reads and writes, all on the device: A, B and C, each dense in its layout.
struct Operands {
    const void* a;
    const void* b;
    void* out;
    void* workspace;
};

}  // namespace ckh
