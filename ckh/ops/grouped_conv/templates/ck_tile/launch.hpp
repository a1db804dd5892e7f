// How a convolution is launched, in every interface: with_kernel, grid_of and starting are the interface's.
#pragma once

#include "types.hpp"

#ifdef CKH_ONE_STAGE
namespace ckh {
// Of an interface whose kernels have one stage only.
template <class>
struct SecondStage {
    static bool supports(const Problem&) { return false; }
    static Launch prepare(const Problem&, const Operands&) { return {}; }
};
}  // namespace ckh
#else
#include "second_stage.hpp"
#endif

namespace ckh {

template <class Kernel>
auto kernel_arguments(const Problem& p, const Operands& operands) {
    return Kernel::MakeKernelArgs(Direction::arguments(conv_param(p), operands));
}

inline bool kernel_supports(const Problem& p) {
    if constexpr (kernel::two_stage) {
        if (!SecondStage<Element>::supports(p)) return false;
    }
    bool supported = false;
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        supported = Kernel::IsSupportedArgument(kernel_arguments<Kernel>(p, Operands{}));
    });
    return supported;
}

inline int64_t workspace_bytes(const Problem& p) {
    return kernel::two_stage ? filter_elements(p) * static_cast<int64_t>(sizeof(Accumulator)) : 0;
}

inline void zero(void* memory, int64_t bytes, hipStream_t stream) {
    check(hipMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream), "hipMemsetAsync");
}

// Backward data writes no input element that no output element reads, and parts of K are added to what is there.
inline void zero_result(const Problem& p, const Operands& operands, hipStream_t stream) {
    if constexpr (kernel::variant == Variant::bwd_data) {
        zero(operands.out, input_elements(p) * static_cast<int64_t>(sizeof(Element)), stream);
    } else if constexpr (kernel::split_k > 1) {
        void* stored = kernel::two_stage ? operands.workspace : operands.out;
        zero(stored, filter_elements(p) * static_cast<int64_t>(sizeof(Stored)), stream);
    }
}

inline bool adds_to_result(const Problem&) { return kernel::split_k > 1; }

inline Launch prepare(const Problem& p, const Operands& operands) {
    Launch first;
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        auto arguments = kernel_arguments<Kernel>(p, operands);
        const dim3 grid = grid_of<Kernel>(p, arguments);
        first = starting(chosen, grid, arguments);
    });
    if constexpr (kernel::two_stage) {
        return [first, second = SecondStage<Element>::prepare(p, operands)](hipStream_t stream) {
            first(stream);
            second(stream);
        };
    } else {
        return first;
    }
}

}  // namespace ckh
