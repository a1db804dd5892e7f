// The functions that a compiled kernel of groups exports: gemm_universal's kernel runs one product after the other.
#pragma once

#include "gemm.hpp"
#include "timing.hpp"

extern "C" {

struct ckh_gemm_grouped_problem {
    int64_t m, n, k, split_k, groups;
    int64_t ms[1024];
};

}  // extern "C"

namespace ckh {

// Calls use(product, number of the group, its first row) for each group with rows.
template <class Use>
void for_each_product(const ckh_gemm_grouped_problem& p, Use use) {
    for (int64_t group = 0, row = 0; group < p.groups; row += p.ms[group++]) {
        if (p.ms[group] > 0) use(GemmProblem{p.ms[group], p.n, p.k, p.split_k}, group, row);
    }
}

inline const char* groups_unsupported(const ckh_gemm_grouped_problem& p) {
    if (p.groups < 1 || p.groups > static_cast<int64_t>(sizeof(p.ms) / sizeof(int64_t))) return "bad number of groups";
    if (!kernel::a_row_major) return "the host has no groups of a column-major A";
    const char* reason = nullptr;
    for_each_product(p, [&](const GemmProblem& one, int64_t, int64_t) {
        if (reason == nullptr) reason = reason_unsupported(one);
    });
    return reason;
}

}  // namespace ckh

extern "C" {

int32_t ckh_abi_version(void) { return 2; }

int32_t ckh_operand_count(void) { return 4; }  // a, b, the result, the workspace

const char* ckh_name(void) { return ckh::kernel::name; }

const char* ckh_unsupported(const ckh_gemm_grouped_problem* problem) { return ckh::groups_unsupported(*problem); }

int64_t ckh_workspace_bytes(const ckh_gemm_grouped_problem* problem) {
    int64_t most = 0;
    ckh::for_each_product(*problem, [&](const ckh::GemmProblem& one, int64_t, int64_t) {
        ckh::Workspace counter(nullptr);
        const ckh::Gemm gemm(one, counter);
        most = counter.used() > most ? counter.used() : most;
    });
    return most;
}

int32_t ckh_run(const ckh_gemm_grouped_problem* problem, void* const* operands) {
    if (ckh::groups_unsupported(*problem)) return 1;
    ckh::for_each_product(*problem, [&](const ckh::GemmProblem& one, int64_t group, int64_t row) {
        ckh::Workspace memory(operands[3]);
        ckh::Gemm gemm(one, memory);
        gemm.run(static_cast<const float*>(operands[0]) + row * problem->k,
                 static_cast<const float*>(operands[1]) + group * problem->n * problem->k,
                 static_cast<float*>(operands[2]) + row * problem->n);
    });
    return 0;
}

int32_t ckh_time(const ckh_gemm_grouped_problem* problem, void* const* operands, int32_t loops, int32_t samples,
                 double* ns_per_loop) {
    const auto run = [&] { return ckh_run(problem, operands); };
    return ckh::time_loops(run, loops, samples, ns_per_loop);
}

}  // extern "C"
