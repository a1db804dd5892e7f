// How a GEMM kernel of CK Tile's interface of mid-2025 is chosen for a problem and launched.
#pragma once

#include "check.hpp"
#include "gemm_mid2025_limits.hpp"

namespace ckh {

// Leading dimensions of dense operands.
inline auto host_arguments(const Problem& p, const Operands& operands) {
    const auto m = static_cast<ck_tile::index_t>(p.m);
    const auto n = static_cast<ck_tile::index_t>(p.n);
    const auto k = static_cast<ck_tile::index_t>(p.k);
    return ck_tile::UniversalGemmHostArgs<1, 1, 0>({operands.a}, {operands.b}, {}, operands.out,
                                                   static_cast<ck_tile::index_t>(p.split_k), m, n, k,
                                                   {a_is_row_major ? k : m}, {b_is_row_major ? n : k}, {}, n);
}

// Calls use(kernel) with the kernel that fits the main loop.
template <Pipeline P, Operation StoreOrAdd, class Use>
void with_kernel_of(const Problem& p, Use use) {
    if constexpr (P == Pipeline::basic_v1) {
        use(typename Chosen<true, ck_tile::TailNumber::Full, StoreOrAdd>::Kernel{});
    } else {
        using Base = typename PipelineClasses<P>::Base;
        const ck_tile::index_t steps = loop_steps(part_length(p));
        const auto run = [&](auto has_hot_loop, auto tail) {
            use(typename Chosen<has_hot_loop.value, tail.value, StoreOrAdd>::Kernel{});
        };
        Base::TailHandler(run, Base::BlockHasHotloop(steps), Base::GetBlockLoopTailNum(steps));
    }
}

template <class Use>
void with_kernel(const Problem& p, Use use) {
    if constexpr (can_split) {
        if (p.split_k > 1) return with_kernel_of<kernel::pipeline, Operation::atomic_add>(p, use);
    }
    with_kernel_of<kernel::pipeline, Operation::set>(p, use);
}

inline bool kernel_supports(const Problem& p) {
    bool supported = false;
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        supported = Kernel::IsSupportedArgument(Kernel::MakeKernelArgs(host_arguments(p, Operands{})));
    });
    return supported;
}

inline int64_t workspace_bytes(const Problem&) { return 0; }

// A persistent kernel has as many blocks as the device holds, which is asked once.
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

inline void launch(const Problem& p, const Operands& operands, hipStream_t stream) {
    if (p.split_k > 1) {
        const size_t bytes = static_cast<size_t>(p.m * p.n) * sizeof(Output);
        check(hipMemsetAsync(operands.out, 0, bytes, stream), "hipMemsetAsync");
    }
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        static_assert(Kernel::PersistentKernel == kernel::persistent, "the pipeline has no persistent kernels");
        const ck_tile::stream_config config{stream};
        const auto arguments = Kernel::MakeKernelArgs(host_arguments(p, operands));
        constexpr dim3 block = Kernel::BlockSize();
        const auto start = ck_tile::make_kernel<block.x, 1>(chosen, grid_of<Kernel>(p, config), block, 0, arguments);
        start(config);
    });
}

}  // namespace ckh
