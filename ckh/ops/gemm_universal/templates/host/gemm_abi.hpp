// The functions that a compiled kernel exports.
#pragma once

#include "gemm.hpp"
#include "timing.hpp"

extern "C" {

int32_t ckh_abi_version(void) { return 1; }

const char* ckh_name(void) { return ckh::kernel::name; }

const char* ckh_unsupported(const ckh_gemm_problem* problem) { return ckh::reason_unsupported(*problem); }

int64_t ckh_workspace_bytes(const ckh_gemm_problem* problem) {
    ckh::Workspace counter(nullptr);
    const ckh::Gemm gemm(*problem, counter);
    return counter.used();
}

int32_t ckh_run(const ckh_gemm_problem* problem, const void* a, const void* b, void* out, void* workspace) {
    if (ckh::reason_unsupported(*problem)) return 1;
    ckh::Workspace memory(workspace);
    ckh::Gemm gemm(*problem, memory);
    gemm.run(static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(out));
    return 0;
}

int32_t ckh_time(const ckh_gemm_problem* problem, const void* a, const void* b, void* out, void* workspace, int32_t loops,
                 int32_t samples, double* ns_per_loop) {
    const auto run = [&] { return ckh_run(problem, a, b, out, workspace); };
    return ckh::time_loops(run, loops, samples, ns_per_loop);
}

}  // extern "C"
