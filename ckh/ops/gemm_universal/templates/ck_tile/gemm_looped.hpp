// How a GEMM kernel of the interfaces of 2025 is chosen for a problem and launched. To be included after its classes,
// entry_of, host_arguments, grid_of and zero_result.
#pragma once

#include "gemm_arguments.hpp"
#include "gemm_looped_limits.hpp"

namespace ckh {

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

template <class Kernel, class Arguments>
Launch starting(Kernel, dim3 grid, const Arguments& arguments) {
    return launch_of(entry_of<Kernel, Arguments>, grid, Kernel::BlockSize(), arguments);
}

inline Launch prepare(const Problem& p, const Operands& operands) {
    Launch prepared;
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        static_assert(Kernel::PersistentKernel == kernel::persistent, "the pipeline has no persistent kernels");
        const auto arguments = Kernel::MakeKernelArgs(host_arguments(p, operands));
        prepared = starting(chosen, grid_of<Kernel>(p, ck_tile::stream_config{}), arguments);
    });
    return prepared;
}

}  // namespace ckh
