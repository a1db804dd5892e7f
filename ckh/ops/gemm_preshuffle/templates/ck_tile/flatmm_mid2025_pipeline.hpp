// CK Tile's flatmm of mid-2025, whose loads and stores of LDS stay on their side of a barrier. flatmm.hpp needs files that
// are not headers.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/gemm.hpp"
#include "ck_tile/ops/flatmm/block/block_flatmm_asmem_bsmem_creg_v1.hpp"
#include "ck_tile/ops/flatmm/kernel/flatmm_kernel.hpp"

namespace ck_tile {

// Seen with clang 19, not with clang 21: where the loop states groups of instructions (sched_group_barrier), the compiler
// moves accesses of LDS across barriers.
CK_TILE_DEVICE void ckh_block_sync_lds() {
#if __clang_major__ < 21
    __builtin_amdgcn_sched_barrier(0);
    block_sync_lds();
    __builtin_amdgcn_sched_barrier(0);
#else
    block_sync_lds();
#endif
}

}  // namespace ck_tile

#define block_sync_lds ckh_block_sync_lds
#include "ck_tile/ops/flatmm/pipeline/flatmm_pipeline_agmem_bgmem_creg_v1.hpp"
#undef block_sync_lds
