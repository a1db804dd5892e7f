// The functions that a compiled kernel exports.
#pragma once

#include <time.h>

#include "merged_weight_gemm.hpp"
#include "pixel_gemm.hpp"
#include "weight_gemm.hpp"

namespace ckh {

// Calls gemm(object) with the implementation that fits the direction and the width of the groups.
template <class Use>
void with_gemm(const Problem& p, Workspace& workspace, Use use) {
    if constexpr (kernel::variant != Variant::bwd_weight) {
        PixelGemm gemm(p, workspace);
        use(gemm);
    } else if (groups_per_vector(p) > 1) {
        MergedWeightGemm gemm(p, workspace);
        use(gemm);
    } else {
        WeightGemm gemm(p, workspace);
        use(gemm);
    }
}

inline const char* reason_unsupported(const Problem& p) {
    const int64_t* sizes = &p.n;
    for (int i = 0; i < 22; ++i) {
        const bool is_pad = sizes + i >= &p.pad_d && sizes + i <= &p.pad_w;
        if (sizes[i] < (is_pad ? 0 : 1)) return "a size is not positive";
    }
    if (p.c % p.g || p.k % p.g) return "C and K must be divisible by G";
    return nullptr;
}

inline double nanoseconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace ckh

extern "C" {

int32_t ckh_abi_version(void) { return 2; }

int32_t ckh_operand_count(void) { return 4; }  // a, b, the result, the workspace

const char* ckh_source_id(void) { return ckh::kernel::source_id; }

const char* ckh_unsupported(const ckh_conv_problem* problem) { return ckh::reason_unsupported(*problem); }

int64_t ckh_workspace_bytes(const ckh_conv_problem* problem) {
    ckh::Workspace counter(nullptr);
    ckh::with_gemm(*problem, counter, [](auto&) {});
    return counter.used();
}

int32_t ckh_run(const ckh_conv_problem* problem, void* const* operands) {
    if (ckh::reason_unsupported(*problem)) return 1;
    ckh::Workspace memory(operands[3]);
    ckh::with_gemm(*problem, memory, [&](auto& gemm) {
        gemm.run(static_cast<const float*>(operands[0]), static_cast<const float*>(operands[1]),
             static_cast<float*>(operands[2]));
    });
    return 0;
}

int32_t ckh_time(const ckh_conv_problem* problem, void* const* operands, int32_t loops, int32_t samples, double* ns_per_loop) {
    for (int32_t sample = 0; sample < samples; ++sample) {
        const double start = ckh::nanoseconds();
        for (int32_t loop = 0; loop < loops; ++loop) {
            if (const int32_t error = ckh_run(problem, operands)) return error;
        }
        ns_per_loop[sample] = (ckh::nanoseconds() - start) / loops;
    }
    return 0;
}

}  // extern "C"
