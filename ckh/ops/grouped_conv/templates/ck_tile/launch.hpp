// How a convolution is launched, in every interface: with_kernel, grid_of and start are the interface's.
#pragma once

#include "types.hpp"

#ifdef CKH_ONE_STAGE
namespace ckh {
// Of an interface whose kernels have one stage only.
template <class>
struct SecondStage {
    static bool supports(const Problem&) { return false; }
    static void launch(const Problem&, const Operands&, hipStream_t) {}
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

inline void launch(const Problem& p, const Operands& operands, hipStream_t stream) {
    zero_result(p, operands, stream);
    with_kernel(p, [&](auto chosen) {
        using Kernel = decltype(chosen);
        auto arguments = kernel_arguments<Kernel>(p, operands);
        const dim3 grid = grid_of<Kernel>(p, arguments);
        start(chosen, grid, stream, arguments);
    });
    if constexpr (kernel::two_stage) SecondStage<Element>::launch(p, operands, stream);
}

}  // namespace ckh
