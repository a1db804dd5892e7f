// The loops over tiles, and which operand a pipeline stages where: ckh/kernels/pipelines.py has for each what kernels state
// as constants. bwd_weight has no filter to pack up front: there A, the output gradient, is packed up front instead of B.
// Forward filters lie along the reduction, so where B is in place they are multiplied as dot products (dot_block.hpp).
// double_smem_buffer gives every staged operand (or table of addresses) two buffers and fills the next before the
// current is used.
#pragma once

#include "register_tile.hpp"

namespace ckh {

constexpr bool kPacksA = kernel::packs_a;
constexpr bool kPacksBUpFront = kernel::packs_b_up_front;
constexpr bool kBInPlace = !kernel::packs_b && !kernel::packs_b_up_front;
constexpr bool kPrefetches = kernel::prefetches_a;
constexpr bool kStreamsRows = kernel::streams_rows;
constexpr int kBuffers = kernel::double_smem_buffer ? 2 : 1;

// stage(i, buffer) before use(i, buffer), one step ahead if there are two buffers.
template <class Stage, class Use>
CKH_INLINE void staged_loop(int64_t count, Stage stage, Use use) {
    if constexpr (kBuffers == 2) {
        if (count > 0) stage(0, 0);
        for (int64_t i = 0; i < count; ++i) {
            const int buffer = static_cast<int>(i & 1);
            if (i + 1 < count) stage(i + 1, buffer ^ 1);
            use(i, buffer);
        }
    } else {
        for (int64_t i = 0; i < count; ++i) {
            stage(i, 0);
            use(i, 0);
        }
    }
}

// `Gemm` offers m_tiles, n_tiles, k_tiles, stage_a, stage_b and compute. `share_a` says that a staged tile of A (or table
// of its addresses) serves all column tiles, so that these run innermost: so do in-place pipelines of merged groups.
template <class Gemm>
void run_nest(Gemm& gemm, bool share_a) {
    if constexpr (kStreamsRows) {
        for (int64_t n = 0; n < gemm.n_tiles; ++n) {
            staged_loop(
                gemm.k_tiles, [&](int64_t k, int b) { gemm.stage_b(b, n, k); },
                [&](int64_t k, int b) {
                    staged_loop(
                        gemm.m_tiles, [&](int64_t m, int a) { gemm.stage_a(a, m, n, k); },
                        [&](int64_t m, int a) { gemm.compute(a, b, m, n, k); });
                });
        }
        return;
    }
    if (share_a) {
        for (int64_t m = 0; m < gemm.m_tiles; ++m) {
            staged_loop(
                gemm.k_tiles, [&](int64_t k, int a) { gemm.stage_a(a, m, 0, k); },
                [&](int64_t k, int a) {
                    for (int64_t n = 0; n < gemm.n_tiles; ++n) {
                        gemm.stage_b(a, n, k);
                        gemm.compute(a, a, m, n, k);
                    }
                });
        }
        return;
    }
    for (int64_t n = 0; n < gemm.n_tiles; ++n) {
        for (int64_t m = 0; m < gemm.m_tiles; ++m) {
            staged_loop(
                gemm.k_tiles,
                [&](int64_t k, int buffer) {
                    gemm.stage_a(buffer, m, n, k);
                    gemm.stage_b(buffer, n, k);
                },
                [&](int64_t k, int buffer) { gemm.compute(buffer, buffer, m, n, k); });
        }
    }
}

}  // namespace ckh
