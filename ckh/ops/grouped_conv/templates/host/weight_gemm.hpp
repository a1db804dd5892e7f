// bwd_weight of dense groups: rows are output channels, columns (tap, input channel), the reduction runs over pixels.
#pragma once

#include "image.hpp"
#include "nest.hpp"
#include "pack_image.hpp"
#include "weight_blocks.hpp"

namespace ckh {

constexpr bool kPacksGradientUpFront = kPacksBUpFront && !kPacksA;

class WeightGemm {
  public:
    WeightGemm(const Problem& problem, Workspace& workspace) : p_(problem) {
        in_ = p_.c / p_.g;
        out_ = p_.k / p_.g;
        columns_ = taps_of(p_) * in_;
        // In place, a column tile stays within one tap; that wastes lanes if taps are narrow, so those are packed.
        in_place_ = (kBInPlace || kPacksGradientUpFront) && (taps_of(p_) == 1 || 2 * in_ >= kColumns);
        packs_runs_ = p_.g == 1 && p_.dilation_w == 1;
        tiles_per_tap_ = divide_up(in_, kTileN);
        n_tiles = in_place_ ? taps_of(p_) * tiles_per_tap_ : divide_up(columns_, kTileN);
        m_tiles = divide_up(out_, kTileM);
        pixels_ = allocate_pixels(p_, workspace);
        zeros_ = workspace.floats(p_.c + kColumns);
        target_ = workspace.take<int64_t>(out_ + kRows);
        for (int buffer = 0; buffer < kBuffers; ++buffer) {
            b_[buffer] = workspace.take<const float*>(kTileK);
            if (!in_place_) b_panel_[buffer] = workspace.floats(int64_t{kTileK} * kTileN);
            if constexpr (kPacksA) a_panel_[buffer] = workspace.floats(int64_t{kTileK} * kTableRows);
        }
        if (kPacksGradientUpFront) {
            // Bands may cut the reduction into more tiles than the whole image has.
            up_front_ = workspace.floats(m_tiles * (output_pixels(p_) + kTileK) * kTableRows);
        }
    }

    void run(const float* gradient, const float* input, float* weight) {
        for (int64_t i = 0; i < p_.c + kColumns; ++i) zeros_[i] = 0.0F;
        for (int64_t i = 0; i < out_; ++i) target_[i] = i * columns_;
        for_phases(pixels_, p_, [&](const Pixels&) {
            for_bands(pixels_, p_.c, [&](int64_t begin, int64_t end) {
                begin_ = begin;
                end_ = end;
                k_tiles = divide_up(end - begin, kTileK);
                for (int64_t group = 0; group < p_.g; ++group) {
                    gradient_ = gradient + group * out_;
                    input_ = input + group * in_;
                    weight_ = weight + group * out_ * columns_;
                    if (kPacksGradientUpFront) pack_gradient();
                    run_nest(*this, false);
                }
            });
        });
    }

    int64_t m_tiles = 0, n_tiles = 0, k_tiles = 0;

    CKH_NOINLINE void stage_a(int buffer, int64_t m, int64_t, int64_t k) {
        const int64_t pixel = begin_ + k * kTileK;
        if constexpr (kPacksA) {
            pack_pixels(a_panel_[buffer], m, pixel, length_of(k));
            a_[buffer] = a_panel_[buffer];
        } else if constexpr (kPacksGradientUpFront) {
            a_[buffer] = up_front_ + (m * (end_ - begin_) + k * kTileK) * kTableRows;
        } else {
            a_[buffer] = gradient_ + pixel * p_.k + m * kTileM;
        }
    }

    CKH_NOINLINE void stage_b(int buffer, int64_t n, int64_t k) {
        const int64_t pixel = begin_ + k * kTileK;
        const int64_t count = length_of(k);
        if (in_place_) {
            const int64_t channel = n % tiles_per_tap_ * kTileN;
            pixels_.addresses(b_[buffer], input_ + channel, zeros_, pixel, count, pixels_.taps[n / tiles_per_tap_]);
            return;
        }
        const int64_t first = n * kTileN;
        const int64_t last = minimum(first + kTileN, columns_);
        if (packs_runs_) pack_runs<kernel::vector_b>(b_panel_[buffer], kTileN, pixels_, p_, input_, pixel, count, first, last);
        for (int64_t at = packs_runs_ ? last : first; at < last;) {
            const int64_t channel = at % in_;
            const int64_t length = minimum(in_ - channel, last - at);
            pixels_.addresses(b_[buffer], input_ + channel, zeros_, pixel, count, pixels_.taps[at / in_]);
            float* to = b_panel_[buffer] + at - first;
            for (int64_t i = 0; i < count; ++i) copy_row<kernel::vector_b>(to + i * kTileN, b_[buffer][i], length);
            at += length;
        }
        for (int64_t i = 0; i < count; ++i) b_[buffer][i] = b_panel_[buffer] + i * kTileN;
    }

    CKH_NOINLINE void compute(int a, int b, int64_t m, int64_t n, int64_t k) {
        const int64_t first = in_place_ ? n / tiles_per_tap_ * in_ + n % tiles_per_tap_ * kTileN : n * kTileN;
        const int64_t end = in_place_ ? (n / tiles_per_tap_ + 1) * in_ : columns_;
        const int64_t columns = minimum(kTileN, end - first);
        const int64_t a_stride = kPacksA || kPacksGradientUpFront ? kTableRows : p_.k;
        const bool fresh = k == 0 && begin_ == 0;
        for_blocks(minimum(kTileM, out_ - m * kTileM), columns, kColumns, [&](auto size, int64_t at, int valid, int64_t column) {
            const Destination to{weight_ + first + column, target_ + m * kTileM + at, columns - column, kLanes, fresh};
            weight_block<decltype(size)::value, kVectors>(a_[a] + at, a_stride, b_[b], column, length_of(k), to, valid);
        });
    }

  private:
    int64_t length_of(int64_t k) const { return minimum(kTileK, end_ - begin_ - k * kTileK); }

    // Rows of tile m for `count` pixels: panel[k][row].
    CKH_NOINLINE void pack_pixels(float* panel, int64_t m, int64_t pixel, int64_t count) const {
        const int64_t rows = minimum(kTileM, out_ - m * kTileM);
        const float* from = gradient_ + pixel * p_.k + m * kTileM;
        for (int64_t i = 0; i < count; ++i) copy_row<kernel::vector_a>(panel + i * kTableRows, from + i * p_.k, rows);
    }

    void pack_gradient() const {
        for (int64_t m = 0; m < m_tiles; ++m) {
            pack_pixels(up_front_ + m * (end_ - begin_) * kTableRows, m, begin_, end_ - begin_);
        }
    }

    Problem p_;
    int64_t in_, out_, columns_, tiles_per_tap_;
    bool in_place_, packs_runs_;
    int64_t begin_ = 0, end_ = 0;
    Pixels pixels_;
    float* zeros_;
    int64_t* target_;
    const float** b_[2];
    float* b_panel_[2];
    float* a_panel_[2];
    const float* a_[2];
    float* up_front_ = nullptr;
    const float* gradient_ = nullptr;
    const float* input_ = nullptr;
    float* weight_ = nullptr;
};

}  // namespace ckh
