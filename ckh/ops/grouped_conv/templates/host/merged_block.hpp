// Register block of narrow groups: the lanes of a vector span several whole groups.
//
// Lane j of a vector belongs to group j / (columns per group) and needs source channel r of that group, for r in turn:
// a permutation of one loaded vector. Depthwise convolution (one channel in, one out) needs no permutation.
#pragma once

#include "blocks.hpp"

namespace ckh {

struct Merging {
    int64_t groups;         // groups in one vector
    int64_t source_step;    // source channels of one vector
    int64_t target_step;    // destination channels of one vector
    const IntVec* lane_of;  // permutation for source channel r of each group
    int64_t first = 0;      // offset of the block's first source channel
};

template <int Rows, int Vectors, bool Permutes>
CKH_NOINLINE void merged_block(const float* const* rows, const Segment* segments, int64_t count, const float* b,
                                            const Merging& merging, const Destination& to, int valid) {
    Vec sum[Rows][Vectors] = {};
    for (int64_t s = 0; s < count; ++s) {
        const Segment& segment = segments[s];
        const float* const* table = rows + s * kTableRows;
        const float* from = b + segment.b;
        const int64_t step = merging.source_step;
        for (int64_t r = 0; r < segment.length; ++r) {
            const IntVec lanes = Permutes ? merging.lane_of[r] : IntVec{};
            Vec row_b[Vectors];
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) row_b[v] = load(from + r * kColumns + v * kLanes);
#pragma GCC unroll 32
            for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
                for (int v = 0; v < Vectors; ++v) {
                    const Vec source = load(table[m] + merging.first + v * step);
                    sum[m][v] += (Permutes ? permute(source, lanes) : source) * row_b[v];
                }
            }
        }
    }
    write_out(sum, to, valid);
}

}  // namespace ckh
