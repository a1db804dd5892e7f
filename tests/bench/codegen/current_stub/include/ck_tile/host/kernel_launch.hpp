// Stub: how a kernel is launched. The kernel, not the caller, states the threads of a block; the caller states how many
// blocks a compute unit shall hold.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

struct stream_config {
    hipStream_t stream_id_ = nullptr;
    bool time_kernel_ = false;
};

inline index_t get_available_compute_units(const stream_config&) { return 1; }

template <int MinBlockPerCu, typename Kernel, typename... Args>
__launch_bounds__(Kernel::kBlockSize, MinBlockPerCu) __global__ void kentry([[maybe_unused]] Args... args) {
#if defined(__HIP_DEVICE_COMPILE__)
    Kernel{}(args...);
#endif
}

template <int MinBlockPerCu = CK_TILE_MIN_BLOCK_PER_CU,
          typename Attr = void,
          typename KernelImpl,
          typename... Args>
CK_TILE_HOST auto make_kernel(KernelImpl, dim3 grid_dim, dim3 block_dim, std::size_t lds_byte, Args... args) {
    return [=](const stream_config& s) {
        kentry<MinBlockPerCu, KernelImpl, Args...><<<grid_dim, block_dim, lds_byte, s.stream_id_>>>(args...);
    };
}

}  // namespace ck_tile
