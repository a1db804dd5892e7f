// What a block of CK Tile's Stream-K kernel of late 2025 signals and waits with. The kernel names it without a namespace,
// so that this one, in the kernel's own namespace and declared before it, is taken.
//
// CK Tile's own sets the flag of a block's partial sums as soon as its first wave has stored; the others may still be
// storing. Here all have. Who waits does not read what its caches had before.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile::reboot {

struct workgroup_barrier : ck_tile::workgroup_barrier {
    using ck_tile::workgroup_barrier::workgroup_barrier;

    CK_TILE_DEVICE void wait_set(uint32_t expected, uint32_t value, uint32_t offset) {
        __syncthreads();
        ck_tile::workgroup_barrier::wait_set(expected, value, offset);
    }
    CK_TILE_DEVICE void wait_eq(uint32_t value, uint32_t offset) {
        ck_tile::workgroup_barrier::wait_eq(value, offset);
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    }
};

}  // namespace ck_tile::reboot
