// bwd_weight of narrow groups: lanes span groups, rows are (tap, input channel of a group), the reduction runs over pixels.
//
// A is the input seen through the taps, B the output gradient. Sums stay in the workspace, one vector per row and group
// of lanes, and are put into the filter's layout at the end.
#pragma once

#include "image.hpp"
#include "nest.hpp"
#include "weight_blocks.hpp"

namespace ckh {

class MergedWeightGemm {
  public:
    MergedWeightGemm(const Problem& problem, Workspace& workspace) : p_(problem) {
        in_ = p_.c / p_.g;
        out_ = p_.k / p_.g;
        const int64_t groups = groups_per_vector(p_);
        vectors_ = divide_up(p_.g, groups);
        merging_ = {groups, groups * in_, groups * out_, nullptr};
        rows_ = taps_of(p_) * in_;
        m_tiles = divide_up(rows_, kTileM);
        n_tiles = divide_up(vectors_, kTileVectors);
        taps_most_ = minimum(taps_of(p_), kTileM / in_ + 2);
        pixels_ = allocate_pixels(p_, workspace);
        zeros_ = workspace.floats(p_.c + kColumns);
        sums_ = workspace.floats(rows_ * vectors_ * kLanes);
        target_ = workspace.take<int64_t>(rows_);
        lane_of_ = workspace.take<IntVec>(in_);
        for (int buffer = 0; buffer < kBuffers; ++buffer) {
            sources_[buffer] = workspace.take<const float*>(taps_most_ * kTileK);
            gradients_[buffer] = workspace.take<const float*>(kTileK);
            if (kPacksA) a_[buffer] = workspace.floats(taps_most_ * kTileK * width(merging_.source_step));
            if (kPacksB) b_[buffer] = workspace.floats(kTileK * width(merging_.target_step));
        }
    }

    void run(const float* gradient, const float* input, float* weight) {
        prepare();
        gradient_ = gradient;
        input_ = input;
        for_phases(pixels_, p_, [&](const Pixels&) {
            for_bands(pixels_, p_.c, [&](int64_t begin, int64_t end) {
                begin_ = begin;
                end_ = end;
                k_tiles = divide_up(end - begin, kTileK);
                run_nest(*this, !kPacksA);
            });
        });
        scatter(weight);
    }

    int64_t m_tiles = 0, n_tiles = 0, k_tiles = 0;

    CKH_NOINLINE void stage_a(int buffer, int64_t m, int64_t n, int64_t k) {
        const int64_t pixel = begin_ + k * kTileK;
        const int64_t count = length_of(k);
        const int64_t first_tap = m * kTileM / in_;
        const int64_t last_tap = (minimum((m + 1) * kTileM, rows_) - 1) / in_;
        const int64_t channel = n * kTileVectors * merging_.source_step;
        const int64_t wide = width(merging_.source_step);
        for (int64_t tap = first_tap; tap <= last_tap; ++tap) {
            const float** table = sources_[buffer] + (tap - first_tap) * kTileK;
            pixels_.addresses(table, input_ + (kPacksA ? channel : 0), zeros_, pixel, count, pixels_.taps[tap]);
            if constexpr (kPacksA) {
                float* to = a_[buffer] + (tap - first_tap) * kTileK * wide;
                for (int64_t i = 0; i < count; ++i, to += wide) {
                    copy_row<kernel::vector_a>(to, table[i], minimum(wide, p_.c - channel));
                    table[i] = to;
                }
            }
        }
    }

    CKH_NOINLINE void stage_b(int buffer, int64_t n, int64_t k) {
        const int64_t channel = n * kTileVectors * merging_.target_step;
        const float* from = gradient_ + (begin_ + k * kTileK) * p_.k + channel;
        const int64_t count = length_of(k);
        const int64_t wide = width(merging_.target_step);
        for (int64_t i = 0; i < count; ++i) {
            gradients_[buffer][i] = from + i * p_.k;
            if constexpr (kPacksB) {
                copy_row<kernel::vector_b>(b_[buffer] + i * wide, from + i * p_.k, minimum(wide, p_.k - channel));
                gradients_[buffer][i] = b_[buffer] + i * wide;
            }
        }
    }

    CKH_NOINLINE void compute(int a, int b, int64_t m, int64_t n, int64_t k) {
        const int64_t vectors = minimum(kTileVectors, vectors_ - n * kTileVectors);
        const int64_t first_row = m * kTileM;
        const bool fresh = k == 0 && begin_ == 0;
        for_blocks(minimum(kTileM, rows_ - first_row), vectors, kVectors, [&](auto size, int64_t at, int valid, int64_t vector) {
            constexpr int rows = decltype(size)::value;
            const float* const* sources[rows];
            IntVec lanes[rows];
            for (int i = 0; i < rows; ++i) {
                const int64_t row = minimum(first_row + at + i, rows_ - 1);
                const int64_t slot = minimum(row / in_ - first_row / in_, taps_most_ - 1);
                sources[i] = sources_[a] + (i < valid ? slot : 0) * kTileK;
                lanes[i] = lane_of_[row % in_];
            }
            const int64_t last = minimum(vector + kVectors, vectors);
            for (int64_t v = vector, width; v < last; v += width) {
                width = width_of(last - v);
                float* base = sums_ + (n * kTileVectors + v) * kLanes;
                const Destination to{base, target_ + first_row + at, width * kLanes, kLanes, fresh};
                Merging block = merging_;
                block.first = (v + (kPacksA ? 0 : n * kTileVectors)) * merging_.source_step;
                block_of<rows>(width, sources, lanes, gradients_[b], length_of(k), block, v * merging_.target_step, to, valid);
            }
        });
    }

  private:
    static constexpr int64_t kTileVectors = kTileN / kLanes;
    static constexpr bool kPacksB = kernel::packs_b;

    template <int Rows>
    void block_of(int64_t width, const float* const* const* sources, const IntVec* lanes, const float* const* gradients,
                  int64_t count, const Merging& merging, int64_t first, const Destination& to, int valid) {
        const bool permutes = in_ > 1 || out_ > 1;
        for_width(width, [&](auto vectors) {
            constexpr int wide = decltype(vectors)::value;
            if (permutes) {
                merged_weight_block<Rows, wide, true>(sources, lanes, gradients, count, merging, first, to, valid);
            } else {
                merged_weight_block<Rows, wide, false>(sources, lanes, gradients, count, merging, first, to, valid);
            }
        });
    }

    int64_t length_of(int64_t k) const { return minimum(kTileK, end_ - begin_ - k * kTileK); }
    static int64_t width(int64_t step) { return (kTileVectors - 1) * step + kLanes; }

    void prepare() {
        for (int64_t i = 0; i < p_.c + kColumns; ++i) zeros_[i] = 0.0F;
        for (int64_t i = 0; i < rows_; ++i) target_[i] = i * vectors_ * kLanes;
        for (int64_t r = 0; r < in_; ++r) {
            for (int64_t lane = 0; lane < kLanes; ++lane) {
                lane_of_[r][lane] = static_cast<int32_t>(minimum(lane / out_, merging_.groups - 1) * in_ + r);
            }
        }
    }

    void scatter(float* weight) const {
        for (int64_t k = 0; k < p_.k; ++k) {
            const int64_t group = k / out_;
            const int64_t vector = group / merging_.groups;
            const int64_t lane = group % merging_.groups * out_ + k % out_;
            for (int64_t tap = 0; tap < taps_of(p_); ++tap) {
                for (int64_t c = 0; c < in_; ++c) {
                    weight[(k * taps_of(p_) + tap) * in_ + c] = sums_[target_[tap * in_ + c] + vector * kLanes + lane];
                }
            }
        }
    }

    Problem p_;
    int64_t in_, out_, rows_, vectors_, taps_most_;
    int64_t begin_ = 0, end_ = 0;
    Merging merging_;
    Pixels pixels_;
    float* zeros_;
    float* sums_;
    int64_t* target_;
    IntVec* lane_of_;
    const float** sources_[2];
    const float** gradients_[2];
    float* a_[2];
    float* b_[2];
    const float* gradient_ = nullptr;
    const float* input_ = nullptr;
};

}  // namespace ckh
