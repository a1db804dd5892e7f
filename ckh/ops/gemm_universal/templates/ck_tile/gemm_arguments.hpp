// What a launch of a GEMM kernel needs besides its arguments, in every interface of CK Tile.
#pragma once

#include "check.hpp"
#include "gemm_types.hpp"

namespace ckh {

inline int64_t workspace_bytes(const Problem&) { return 0; }

// A persistent kernel has as many blocks as the device holds, which is queried once.
template <class Kernel>
dim3 grid_of(const Problem& p, const ck_tile::stream_config& stream) {
    if constexpr (Kernel::PersistentKernel) {
        static const dim3 grid = Kernel::MaxOccupancyGridSize(stream);
        return grid;
    } else {
        return Kernel::GridSize(static_cast<ck_tile::index_t>(p.m), static_cast<ck_tile::index_t>(p.n),
                                static_cast<ck_tile::index_t>(p.split_k));
    }
}

// Parts of K are added to what is there.
inline bool adds_to_result(const Problem& p) { return p.split_k > 1; }

inline void zero_result(const Problem& p, const Operands& operands, hipStream_t stream) {
    if (!adds_to_result(p)) return;
    const size_t bytes = static_cast<size_t>(p.m * p.n) * sizeof(Output);
    check(hipMemsetAsync(operands.out, 0, bytes, stream), "hipMemsetAsync");
}

}  // namespace ckh
