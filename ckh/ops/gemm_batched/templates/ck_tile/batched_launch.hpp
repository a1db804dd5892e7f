// How a batched GEMM kernel of the interfaces of 2025 is chosen for a problem and launched: as gemm_universal's, whose
// headers name the kernel's class, its grid and what is zeroed before a launch. To be included after the classes of an
// interface.
#pragma once

#include "batched_kernel.hpp"
#include "batched_problem.hpp"
#include "gemm_arguments.hpp"

namespace ckh {

inline ck_tile::index_t index_of(int64_t value) { return static_cast<ck_tile::index_t>(value); }

inline auto host_arguments(const Problem& one, const Operands& operands) {
    const ckh_gemm_batched_problem& p = batch_of(one);
    return ck_tile::BatchedGemmHostArgs(operands.a, operands.b, operands.out, index_of(p.split_k), index_of(p.m),
                                        index_of(p.n), index_of(p.k), index_of(p.lda), index_of(p.ldb), index_of(p.ldc),
                                        index_of(p.stride_a), index_of(p.stride_b), index_of(p.stride_c),
                                        index_of(p.batch));
}

template <class Kernel>
dim3 grid_of(const Problem& p, const ck_tile::stream_config&) {
    return Kernel::GridSize(index_of(p.m), index_of(p.n), index_of(p.split_k), index_of(batch_of(p).batch));
}

// What lies between rows and between matrices is left as it is.
inline void zero_result(const Problem& one, const Operands& operands, hipStream_t stream) {
    if (!adds_to_result(one)) return;
    const ckh_gemm_batched_problem& p = batch_of(one);
    const bool is_dense = p.ldc == p.n;
    const int64_t lines = is_dense ? 1 : p.m;
    const auto bytes = static_cast<size_t>(is_dense ? p.m * p.n : p.n) * sizeof(Output);
    for (int64_t line = 0; line < p.batch * lines; ++line) {
        Output* first = static_cast<Output*>(operands.out) + line / lines * p.stride_c + line % lines * p.ldc;
        check(hipMemsetAsync(first, 0, bytes, stream), "hipMemsetAsync");
    }
}

}  // namespace ckh

#include "gemm_looped.hpp"
