// What CK Tile's GEMM kernels of 2025 get wrong without refusing it themselves in IsSupportedArgument.
#pragma once

#include "gemm_limits.hpp"
#include "gemm_looped_kernel.hpp"

namespace ckh {

// Sixteen-bit results are added in pairs; a kernel that stores them one by one has no code to add.
constexpr bool can_split =
    sizeof(Output) != 2 || EpilogueOf<kernel::epilogue, Operation::set>::Class::GetVectorSizeC() % 2 == 0;

// The length of all parts of K but the last: whole warp tiles, as CK Tile cuts it.
inline int64_t part_length(const Problem& p) {
    return ck_tile::integer_divide_ceil(p.k, p.split_k * kernel::warp_tile_k) * kernel::warp_tile_k;
}

inline int64_t last_part_length(const Problem& p) { return p.k - part_length(p) * (p.split_k - 1); }

// Steps of the main loop.
inline ck_tile::index_t loop_steps(int64_t length) {
    return Partitioner::GetLoopNum(static_cast<ck_tile::index_t>(length));
}

// A launch is of one kernel, so its main loop must run and end alike in all parts.
template <Pipeline P>
bool runs_alike(int64_t one, int64_t other) {
    if constexpr (P == Pipeline::basic_v1) {
        return true;
    } else {
        using Base = typename PipelineClasses<P>::Base;
        return Base::BlockHasHotloop(loop_steps(one)) == Base::BlockHasHotloop(loop_steps(other)) &&
               Base::GetBlockLoopTailNum(loop_steps(one)) == Base::GetBlockLoopTailNum(loop_steps(other));
    }
}

inline const char* reads_next_rows(int64_t length) {
    return has_zeros_beyond_k ? nullptr : takes_more_tiles(loop_steps(length));
}

inline const char* split_refused(const Problem& p) {
    if (!can_split) return "parts of K cannot be added to 16-bit results that are stored one by one";
    if (has_rows_beyond_end(p)) return "parts of K would be added to bf16 rows beyond the end of C";
    if (p.split_k > UINT16_MAX) return "K is split into more than 2^16 - 1 parts";
    if (last_part_length(p) < 1) return "split-K leaves nothing for the last part";
    if (!runs_alike<kernel::pipeline>(part_length(p), last_part_length(p))) {
        return "split-K needs a last part whose main loop runs and ends as that of the others";
    }
    return nullptr;
}

inline const char* interface_refuses(const Problem& p) {
    if (!is_addressable(p)) return "a matrix is too large for 32-bit offsets";
    if (p.split_k > 1) {
        if (const char* reason = split_refused(p)) return reason;
    }
    const char* reason = reads_next_rows(part_length(p));
    return reason ? reason : reads_next_rows(last_part_length(p));
}

}  // namespace ckh
