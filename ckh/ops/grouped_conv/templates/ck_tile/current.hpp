// CK Tile's current interface, of late 2025 and 2026: pipelines find out when they run whether their main loop runs and
// how it ends, the epilogue whether it stores or adds, so a kernel is one class.
//
// This was written from CK Tile's published sources and has been checked against stubs of them only, which declare what
// is used here with the published template parameters and argument types (tests/bench/codegen/current_stub). It has not
// been compiled against the sources themselves, and no GPU has run it.
#pragma once

#include "current_kernel.hpp"
#include "current_limits.hpp"
#include "second_stage.hpp"
#include "types.hpp"

namespace ckh {

static_assert(kernel::variant == Variant::bwd_weight || !kernel::two_stage, "only backward weight has two stages");
static_assert(kernel::variant == Variant::forward || !kernel::split_image, "only forward has split images");
static_assert(kernel::variant != Variant::forward || kernel::split_k == 1, "forward cannot split K");
static_assert(kernel::variant != Variant::bwd_data || !kernel::explicit_gemm, "backward data has no explicit GEMM");
static_assert(kernel::variant != Variant::bwd_data || kernel::num_groups_to_merge == 1,
              "backward data has no merged groups");

inline auto kernel_arguments(const Problem& p, const Operands& operands) {
    return Kernel::MakeKernelArgs(Direction::arguments(conv_param(p), operands));
}

inline bool kernel_supports(const Problem& p) {
    if constexpr (kernel::two_stage) {
        if (!SecondStage<Element>::supports(p)) return false;
    }
    return Kernel::IsSupportedArgument(kernel_arguments(p, Operands{}));
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
    const auto arguments = kernel_arguments(p, operands);
    const auto start = ck_tile::make_kernel<kernel::block_per_cu>(Kernel{}, Kernel::GridSize(arguments),
                                                                  Kernel::BlockSize(), 0, arguments);
    start(ck_tile::stream_config{stream});
    if constexpr (kernel::two_stage) SecondStage<Element>::launch(p, operands, stream);
}

}  // namespace ckh
