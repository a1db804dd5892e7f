// How a grouped GEMM kernel is chosen for a problem and launched: as gemm_universal's, whose headers name the kernel's class,
// its grid, its arguments and what is zeroed before a launch. To be included after the classes of an interface.
#pragma once

#include <memory>

#include "gemm_arguments.hpp"
#include "grouped_kernel.hpp"
#include "grouped_problem.hpp"

namespace ckh {

// Persistent kernels and those with two buffers find out when they run whether their main loop runs and how it ends: they
// are one class for all problems.
constexpr bool chooses_loop = kernel::persistent || kernel::double_smem_buffer;

template <class Gemm>
using AnyLoop = std::conditional_t<
    chooses_loop, typename PipelineClasses<kernel::pipeline>::template Full<true, ck_tile::TailNumber::Full>, Gemm>;

template <class Gemm>
using OrderedTiles = std::conditional_t<kernel::persistent, ck_tile::CkhPipelineOfNextTile<Gemm>, Gemm>;

template <class Tiles, class Gemm, class EpilogueClass>
using KernelOf = ck_tile::CkhGroupedGemmKernel<Tiles, OrderedTiles<AnyLoop<Gemm>>, EpilogueClass>;

using Pointer = decltype(ck_tile::cast_pointer_to_constant_address_space(std::declval<const void*>()));

template <class Kernel>
constexpr auto function_of = function_taking<OwnKernel<Kernel>, Pointer>;

inline ck_tile::index_t index_of(int64_t value) { return static_cast<ck_tile::index_t>(value); }

// Groups without rows are among them; CK Tile leaves them out.
inline auto host_arguments(const Problem& one, const Operands& operands) {
    const ckh_gemm_grouped_problem& p = groups_of(one);
    const auto* a = static_cast<const Element*>(operands.a);
    const auto* b = static_cast<const Element*>(operands.b);
    auto* c = static_cast<Output*>(operands.out);
    std::vector<ck_tile::CkhGroup> groups;
    groups.reserve(static_cast<size_t>(p.groups));
    for (int64_t group = 0, row = 0; group < p.groups; row += p.ms[group++]) {
        groups.push_back(group_of(a + row * (a_is_row_major ? p.k : 1), b + group * p.n * p.k, c + row * p.n,
                                  index_of(p.split_k), index_of(p.ms[group]), index_of(p.n), index_of(p.k),
                                  index_of(a_is_row_major ? p.k : p.m), index_of(b_is_row_major ? p.n : p.k)));
    }
    return groups;
}

// A persistent kernel has as many blocks as the device holds, which is queried once.
template <class Kernel>
dim3 grid_of(const Problem& p, const ck_tile::stream_config& stream) {
    if constexpr (Kernel::PersistentKernel) {
        static const dim3 grid = [&] {
            int blocks = 0;
            check(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_of<Kernel>, Kernel::BlockSize().x, 0),
                  "hipOccupancyMaxActiveBlocksPerMultiprocessor");
            return dim3(static_cast<uint32_t>(ck_tile::get_available_compute_units(stream) * blocks));
        }();
        return grid;
    } else {
        return Kernel::GridSize(host_arguments(p, Operands{}));
    }
}

inline void zero_result(const Problem& p, const Operands& operands, hipStream_t stream) {
    if (!adds_to_result(p)) return;
    const size_t bytes = static_cast<size_t>(p.m * p.n) * sizeof(Output);
    check(hipMemsetAsync(operands.out, 0, bytes, stream), "hipMemsetAsync");
}

// Memory of the device with a copy. Freeing it waits for the kernels that read it.
inline std::shared_ptr<const void> copied_to_device(const void* from, size_t bytes) {
    void* to = nullptr;
    check(hipMalloc(&to, bytes), "hipMalloc");
    const std::shared_ptr<const void> kept(to, [=](const void*) { static_cast<void>(hipFree(to)); });
    check(hipMemcpy(to, from, bytes, hipMemcpyHostToDevice), "hipMemcpy");
    return kept;
}

// The groups' arguments lie in the device's memory for as long as the launch is kept.
template <class Kernel, class Argument>
Launch starting(Kernel, dim3 grid, const std::vector<Argument>& arguments) {
    const auto memory = copied_to_device(arguments.data(), arguments.size() * sizeof(Argument));
    const Pointer first = ck_tile::cast_pointer_to_constant_address_space(memory.get());
    const Launch launch = launch_of(function_of<Kernel>, grid, Kernel::BlockSize(), first,
                                    index_of(static_cast<int64_t>(arguments.size())));
    return [launch, memory](hipStream_t stream) { launch(stream); };
}

}  // namespace ckh

#include "gemm_looped.hpp"
