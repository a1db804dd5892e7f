// A Stream-K GEMM kernel of CK Tile's interface of late 2025, and how it is launched. Blocks share the steps along K of
// all tiles that do not fill the device; a block finds out when it runs how its main loop ends.
#pragma once

#include "gemm_plain.hpp"
#include "gemm_universal_kernel.hpp"
#include "gemm_late2025_classes.hpp"
#include "gemm_looped_kernel.hpp"
#include "gemm_limits.hpp"

namespace ckh {

using Strategy = ck_tile::StreamKReductionStrategy;
using Gemm = typename PipelineClasses<kernel::pipeline>::template Full<true, ck_tile::TailNumber::Full>;

constexpr bool is_added = kernel::strategy == Strategy::Atomic;
using EpilogueClass = typename EpilogueOf<kernel::epilogue, is_added ? Operation::atomic_add : Operation::set>::Class;

using TilesOfGrid = ck_tile::StreamKTilePartitioner_v2<Shape, kernel::strategy, kernel::persistent>;

// A persistent block asks for the grid between its tiles. There its waves meet: CK Tile's loop lets some load the next
// tile into LDS while others still read the one before.
struct SharedTiles : TilesOfGrid {
    using TilesOfGrid::TilesOfGrid;
    CK_TILE_DEVICE ck_tile::index_t get_grid() const noexcept {
        ck_tile::block_sync_lds();
        return TilesOfGrid::get_grid();
    }
};

using Kernel = ck_tile::reboot::StreamKKernel<std::conditional_t<kernel::persistent, SharedTiles, TilesOfGrid>, Gemm,
                                              EpilogueClass>;
using Arguments = typename Kernel::KernelArgs;
constexpr auto entry = ck_tile::kentry<1, OwnKernel<Kernel>, Arguments>;

inline ck_tile::index_t index_of(int64_t value) { return static_cast<ck_tile::index_t>(value); }

// Blocks that share tiles: a number for each compute unit, 0: as many as it holds. The device is asked once.
inline int blocks_of_device() {
    int device = 0, held = kernel::blocks_per_cu;
    hipDeviceProp_t properties;
    check(hipGetDevice(&device), "hipGetDevice");
    check(hipGetDeviceProperties(&properties, device), "hipGetDeviceProperties");
    if (held == 0) {
        const auto threads = static_cast<int>(Kernel::BlockSize().x);
        check(hipOccupancyMaxActiveBlocksPerMultiprocessor(&held, reinterpret_cast<const void*>(entry), threads, 0),
              "hipOccupancyMaxActiveBlocksPerMultiprocessor");
    }
    return properties.multiProcessorCount * held;
}

inline Arguments arguments_of(const Problem& p, const Operands& operands) {
    static const int blocks = blocks_of_device();
    const auto m = index_of(p.m), n = index_of(p.n), k = index_of(p.k);
    const ck_tile::reboot::StreamKHostArgs host(operands.a, operands.b, operands.out, m, n, k, a_is_row_major ? k : m,
                                                b_is_row_major ? n : k, n, kernel::strategy);
    Arguments arguments = Kernel::MakeKernelArgs(host, blocks, 1);
    Kernel::SetWorkSpacePointer(arguments, operands.workspace);
    return arguments;
}

// A flag and a tile of partial sums for each block that shares tiles.
inline int64_t workspace_bytes(const Problem& p) {
    constexpr int64_t tile = int64_t{kernel::tile_m} * kernel::tile_n * sizeof(Accumulator);
    const int64_t blocks = arguments_of(p, Operands{}).tile_partitioner.get_sk_ctas();
    return is_added ? 0 : blocks * (tile + static_cast<int64_t>(sizeof(ck_tile::index_t)));
}

inline bool kernel_supports(const Problem& p) { return Kernel::IsSupportedArgument(arguments_of(p, Operands{})); }

inline const char* interface_refuses(const Problem& p) {
    if (p.split_k != 1) return "Stream-K splits K itself";
    if (!is_addressable(p)) return "a matrix is too large for 32-bit offsets";
    // A block's part of K is whole tiles: it would read beyond K.
    if (p.k % kernel::tile_k != 0) return "K is not a multiple of the tile";
    if (is_added && sizeof(Output) == 2 && EpilogueClass::GetVectorSizeC() % 2 != 0) {
        return "parts of K cannot be added to 16-bit results that are stored one by one";
    }
    if (is_added && has_rows_beyond_end(p)) return "parts of K would be added to bf16 rows beyond the end of C";
    return workspace_bytes(p) <= INT32_MAX ? nullptr : "partial sums take more than 2^31 bytes";
}

// A launch begins with what it needs to be right: a zeroed C to add to, or zeroed flags.
inline Launch prepare(const Problem& p, const Operands& operands) {
    const auto arguments = arguments_of(p, operands);
    const auto start = launch_of(entry, Kernel::GridSize(arguments.tile_partitioner), Kernel::BlockSize(), arguments);
    void* const zeroed = is_added ? operands.out : operands.workspace;
    const auto bytes = is_added ? static_cast<size_t>(p.m * p.n) * sizeof(Output)
                                : static_cast<size_t>(arguments.tile_partitioner.get_flags_buffer_size());
    return [=](hipStream_t stream) {
        if (bytes != 0) check(hipMemsetAsync(zeroed, 0, bytes, stream), "hipMemsetAsync");
        start(stream);
    };
}

inline void zero_result(const Problem&, const Operands&, hipStream_t) {}

inline bool adds_to_result(const Problem&) { return false; }

}  // namespace ckh
