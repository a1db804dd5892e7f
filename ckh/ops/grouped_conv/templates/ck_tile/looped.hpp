// The kernels of interfaces in which a pipeline is given at compile time whether its main loop runs and how it ends: each
// such case is a kernel of its own, chosen when it is launched. To be included after an interface's problems and its table
// of pipelines.
#pragma once

#include "directions.hpp"

namespace ckh {

using Operation = ck_tile::memory_operation_enum;
constexpr auto store_or_add = kernel::split_k > 1 ? Operation::atomic_add : Operation::set;
using Epilogue = ck_tile::CShuffleEpilogue<EpilogueProblem<store_or_add>>;

template <bool HasHotLoop, ck_tile::TailNumber Tail>
using KernelOf =
    typename Direction::template Kernel<typename TableOf<kernel::pipeline>::template Full<HasHotLoop, Tail>, Epilogue>;

// Steps of the main loop, as an interface counts them.
ck_tile::index_t loop_steps(const Problem& p);

template <Pipeline P, class Use>
void with_kernel_of(const Problem& p, Use use) {
    if constexpr (P == Pipeline::basic_v1) {
        use(KernelOf<true, ck_tile::TailNumber::Full>{});
    } else {
        using Base = typename TableOf<P>::Base;
        const ck_tile::index_t steps = loop_steps(p);
        const auto run = [&](auto has_hot_loop, auto tail) { use(KernelOf<has_hot_loop.value, tail.value>{}); };
        Base::TailHandler(run, Base::BlockHasHotloop(steps), Base::GetBlockLoopTailNum(steps));
    }
}

// Calls use(kernel) with the kernel that fits the main loop.
template <class Use>
void with_kernel(const Problem& p, Use use) {
    with_kernel_of<kernel::pipeline>(p, use);
}

}  // namespace ckh
