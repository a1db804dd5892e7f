// The blocks of a launch, and what is zeroed before it, of a dense matrix product. To be included after entry_of, the GPU
// function that an interface launches.
#pragma once

#include "gemm_arguments.hpp"

namespace ckh {

// A persistent kernel has as many blocks as the device holds, which is queried once, of the function that is launched: any
// other would be a second caller of the kernel's body, which the compiler then calls instead of inlining it.
template <class Kernel>
dim3 grid_of(const Problem& p, const ck_tile::stream_config& stream) {
    if constexpr (Kernel::PersistentKernel) {
        static const dim3 grid = [&] {
            int blocks = 0;
            const auto threads = static_cast<int>(Kernel::BlockSize().x);
            check(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, entry_of<Kernel, typename Kernel::KernelArgs>,
                                                               threads, 0),
                  "hipOccupancyMaxActiveBlocksPerMultiprocessor");
            return dim3(static_cast<uint32_t>(ck_tile::get_available_compute_units(stream) * blocks));
        }();
        return grid;
    } else {
        return Kernel::GridSize(static_cast<ck_tile::index_t>(p.m), static_cast<ck_tile::index_t>(p.n),
                                static_cast<ck_tile::index_t>(p.split_k));
    }
}

inline void zero_result(const Problem& p, const Operands& operands, hipStream_t stream) {
    if (!adds_to_result(p)) return;
    const size_t bytes = static_cast<size_t>(p.m * p.n) * sizeof(Output);
    check(hipMemsetAsync(operands.out, 0, bytes, stream), "hipMemsetAsync");
}

}  // namespace ckh
