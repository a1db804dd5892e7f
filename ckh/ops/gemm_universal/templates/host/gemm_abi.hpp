// The functions that a compiled kernel exports.
#pragma once

#include "gemm.hpp"
#include "timing.hpp"

extern "C" {

int32_t ckh_abi_version(void) { return 2; }

int32_t ckh_operand_count(void) { return 4; }  // a, b, the result, the workspace

const char* ckh_name(void) { return ckh::kernel::name; }

const char* ckh_unsupported(const ckh_gemm_problem* problem) { return ckh::reason_unsupported(*problem); }

int64_t ckh_workspace_bytes(const ckh_gemm_problem* problem) {
    ckh::Workspace counter(nullptr);
    const ckh::Gemm gemm(*problem, counter);
    return counter.used();
}

int32_t ckh_run(const ckh_gemm_problem* problem, void* const* operands) {
    if (ckh::reason_unsupported(*problem)) return 1;
    ckh::Workspace memory(operands[3]);
    ckh::Gemm gemm(*problem, memory);
    gemm.run(static_cast<const float*>(operands[0]), static_cast<const float*>(operands[1]),
             static_cast<float*>(operands[2]));
    return 0;
}

int32_t ckh_time(const ckh_gemm_problem* problem, void* const* operands, int32_t loops, int32_t samples, double* ns_per_loop) {
    const auto run = [&] { return ckh_run(problem, operands); };
    return ckh::time_loops(run, loops, samples, ns_per_loop);
}

}  // extern "C"
