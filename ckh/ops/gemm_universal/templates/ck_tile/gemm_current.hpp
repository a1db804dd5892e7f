// A GEMM kernel of CK Tile's current interface, of late 2025 and 2026, and how it is launched. Pipelines find out when
// they run whether their main loop runs and how it ends, and kernels whether they store or add, so a kernel is one class.
//
// This was written from CK Tile's published sources and has been checked against stubs of them only, which declare what
// is used here with the published template parameters and argument types (tests/bench/codegen/current_stub). It has not
// been compiled against the sources themselves, and no GPU has run it.
#pragma once

#include "gemm_current_limits.hpp"
#include "gemm_grid.hpp"
#include "gemm_host_arguments.hpp"

namespace ckh {

static_assert(Kernel::PersistentKernel == kernel::persistent, "the pipeline has no persistent kernels");

inline auto kernel_arguments(const Problem& p, const Operands& operands) {
    return Kernel::MakeKernelArgs(host_arguments(p, operands));
}

inline bool kernel_supports(const Problem& p) { return Kernel::IsSupportedArgument(kernel_arguments(p, Operands{})); }

inline Launch prepare(const Problem& p, const Operands& operands) {
    const auto arguments = kernel_arguments(p, operands);
    using Arguments = std::remove_const_t<decltype(arguments)>;
    return launch_of(entry_of<Kernel, Arguments>, grid_of<Kernel>(p, ck_tile::stream_config{}), Kernel::BlockSize(),
                     arguments);
}

}  // namespace ckh
