// What the register blocks of all kinds share: the stretch of the reduction they run over and the way out.
#pragma once

#include "register_tile.hpp"

namespace ckh {

// A stretch of the reduction within one tap of the filter.
struct Segment {
    int64_t tap;      // position in the phase's list of taps
    int64_t channel;  // first source channel
    int64_t length;   // channels
    int64_t a, b;     // offset of the first column of a packed A, of the first row of B
};

// Where a register block writes: row i begins at target[i]; vector v covers `step` columns from v * step.
struct Destination {
    float* base;
    const int64_t* target;
    int64_t columns;  // columns that exist
    int64_t step;     // columns of one vector, kLanes unless lanes span groups
    bool first;       // overwrite, or add to what is there
};

// Where columns end within a block, or vectors hold fewer columns than lanes. Kept out of the blocks: it is code for every
// kind of end, and would be most of what there is to compile.
CKH_NOINLINE inline void write_part(const Vec* sums, int vectors, const Destination& to, int valid) {
    for (int m = 0; m < valid; ++m) {
        float* row = to.base + to.target[m];
        for (int v = 0; v < vectors; ++v, ++sums) {
            const int64_t count = minimum(to.step, to.columns - v * to.step);
            float* part = row + v * to.step;
            if (count > 0) store_first(part, to.first ? *sums : *sums + load_first(part, count), count);
        }
    }
}

template <int Rows, int Vectors>
CKH_INLINE void write_out(const Vec (&sum)[Rows][Vectors], const Destination& to, int valid) {
    if (to.step != kLanes || to.columns < Vectors * kLanes) {
        Vec sums[Rows][Vectors];
#pragma GCC unroll 32
        for (int m = 0; m < Rows; ++m)
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) sums[m][v] = sum[m][v];
        return write_part(&sums[0][0], Vectors, to, valid);
    }
#pragma GCC unroll 32
    for (int m = 0; m < Rows; ++m) {
        if (m < valid) {
            float* row = to.base + to.target[m];
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) {
                store(row + v * kLanes, to.first ? sum[m][v] : sum[m][v] + load(row + v * kLanes));
            }
        }
    }
}

}  // namespace ckh
