// The functions that a compiled kernel of batches exports: gemm_universal's kernel runs one product after the other.
#pragma once

#include "gemm.hpp"
#include "timing.hpp"

extern "C" {

struct ckh_gemm_batched_problem {
    int64_t m, n, k, split_k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
};

}  // extern "C"

namespace ckh {

inline GemmProblem one_of(const ckh_gemm_batched_problem& p) { return {p.m, p.n, p.k, p.split_k}; }

inline const char* batch_unsupported(const ckh_gemm_batched_problem& p) {
    if (p.batch < 1) return "a size is not positive";
    const int64_t a = kernel::a_row_major ? p.k : p.m;
    const int64_t b = kernel::b_row_major ? p.n : p.k;
    if (p.lda != a || p.ldb != b || p.ldc != p.n) return "the host has no gaps between lines";
    return reason_unsupported(one_of(p));
}

}  // namespace ckh

extern "C" {

int32_t ckh_abi_version(void) { return 2; }

int32_t ckh_operand_count(void) { return 4; }  // a, b, the result, the workspace

const char* ckh_name(void) { return ckh::kernel::name; }

const char* ckh_unsupported(const ckh_gemm_batched_problem* problem) { return ckh::batch_unsupported(*problem); }

int64_t ckh_workspace_bytes(const ckh_gemm_batched_problem* problem) {
    ckh::Workspace counter(nullptr);
    const ckh::Gemm gemm(ckh::one_of(*problem), counter);
    return counter.used();
}

int32_t ckh_run(const ckh_gemm_batched_problem* problem, void* const* operands) {
    if (ckh::batch_unsupported(*problem)) return 1;
    ckh::Workspace memory(operands[3]);
    ckh::Gemm gemm(ckh::one_of(*problem), memory);
    for (int64_t i = 0; i < problem->batch; ++i) {
        gemm.run(static_cast<const float*>(operands[0]) + i * problem->stride_a,
                 static_cast<const float*>(operands[1]) + i * problem->stride_b,
                 static_cast<float*>(operands[2]) + i * problem->stride_c);
    }
    return 0;
}

int32_t ckh_time(const ckh_gemm_batched_problem* problem, void* const* operands, int32_t loops, int32_t samples,
                 double* ns_per_loop) {
    const auto run = [&] { return ckh_run(problem, operands); };
    return ckh::time_loops(run, loops, samples, ns_per_loop);
}

}  // extern "C"
