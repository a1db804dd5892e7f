// Forward and bwd_data as one GEMM: rows are destination pixels, columns destination channels, and the reduction runs
// over the taps of a phase and the source channels.
#pragma once

#include "dot_block.hpp"
#include "image.hpp"
#include "nest.hpp"
#include "outer_block.hpp"
#include "pack_filter.hpp"
#include "pack_image.hpp"

namespace ckh {

constexpr bool kUsesDots = kernel::variant == Variant::forward && kBInPlace;

class PixelGemm {
  public:
    PixelGemm(const Problem& problem, Workspace& workspace) : p_(problem) {
        const int64_t groups = groups_per_vector(p_);
        merges_ = groups > 1;
        source_all_ = kIsBackwardData ? p_.k : p_.c;
        target_all_ = kIsBackwardData ? p_.c : p_.k;
        source_ = source_all_ / p_.g;
        target_ = target_all_ / p_.g;
        merging_ = {groups, groups * source_, groups * target_, nullptr};
        // A dot product's lanes run along the reduction, so there tile_k counts vectors.
        tile_k_ = kUsesDots && !merges_ ? kTileK * kLanes : merges_ ? maximum(kTileK / source_, 1) * source_ : kTileK;
        columns_ = merges_ ? divide_up(p_.g, groups) * kLanes : target_;
        n_tiles = divide_up(columns_, kTileN);
        k_tiles_most_ = divide_up(taps_of(p_) * source_, tile_k_);
        segments_most_ = minimum(taps_of(p_), tile_k_ / source_ + 2);
        b_up_front_ = kPacksBUpFront || (merges_ && !kStreamsRows);
        group_count_ = merges_ ? 1 : p_.g;
        packs_runs_ = kPacksA && kernel::variant == Variant::forward && p_.g == 1 && p_.dilation_w == 1;
        allocate(workspace);
    }

    void run(const float* source, const float* filter, float* target) {
        fill_lanes();
        const int64_t zeros = source_all_ + kColumns;
        for (int64_t i = 0; i < zeros; ++i) zeros_[i] = 0.0F;
        filter_all_ = filter;
        for_phases(pixels_, p_, [&](const Pixels&) {
            k_length_ = pixels_.tap_count * source_;
            k_tiles = divide_up(k_length_, tile_k_);
            if (k_tiles == 0) return clear(target);
            if (b_up_front_) pack_all();
            for_bands(pixels_, source_all_, [&](int64_t begin, int64_t end) {
                begin_ = begin;
                end_ = end;
                m_tiles = divide_up(end - begin, kTileM);
                for (group_ = 0; group_ < group_count_; ++group_) {
                    source_base_ = source + group_ * source_;
                    target_base_ = target + group_ * target_;
                    run_nest(*this, merges_ ? !kPacksA : kernel::shares_a);
                }
            });
        });
    }

    int64_t m_tiles = 0, n_tiles = 0, k_tiles = 0;

    CKH_NOINLINE void stage_a(int buffer, int64_t m, int64_t n, int64_t k) {
        cut_segments(buffer, k);
        const int64_t row = begin_ + m * kTileM;
        const int64_t rows = minimum(kTileM, end_ - row);
        if (packs_runs_) {
            const int64_t begin = k * kTileK;
            pack_runs<kernel::vector_a>(a_[buffer], kPanelStride, pixels_, p_, source_base_, row, rows, begin, minimum(begin + kTileK, k_length_));
            return;
        }
        for (int64_t s = 0; s < segment_count_[buffer]; ++s) {
            const Segment& segment = segments_[buffer][s];
            // Merged groups read in place add the column's offset later, so that all column tiles share the addresses.
            const int64_t channel = !merges_ ? segment.channel : kPacksA ? n * tile_source_step() : 0;
            const float** table = rows_[buffer] + s * kTableRows;
            pixels_.addresses(table, source_base_ + channel, zeros_, row, rows, pixels_.taps[segment.tap]);
            for (int64_t i = rows; i < rows + kRows; ++i) table[i] = zeros_;
            if constexpr (kPacksA) pack_segment(buffer, segment, table, rows, n);
        }
    }

    CKH_NOINLINE void stage_b(int buffer, int64_t n, int64_t k) {
        if (b_up_front_) {
            b_[buffer] = panel_of(filter_panels_, group_, n, k);
        } else if (!kBInPlace) {
            b_[buffer] = filter_panels_ + buffer * panel_size();
            pack_tile(b_[buffer], group_, n, k);
        }
    }

    CKH_NOINLINE void compute(int a, int b, int64_t m, int64_t n, int64_t k) {
        const int64_t row = begin_ + m * kTileM;
        const int64_t columns = minimum(kTileN, columns_ - n * kTileN);
        for_blocks(minimum(kTileM, end_ - row), columns, column_step(), [&](auto size, int64_t at, int valid, int64_t column) {
            constexpr int rows = decltype(size)::value;
            Destination to{target_base_, pixels_.target + row + at, 0, kLanes, k == 0};
            if (merges_) {
                merged<rows>(a, b, at, n, column, columns, to, valid);
            } else {
                to.base += n * kTileN + column;
                to.columns = columns - column;
                dense<rows>(a, b, at, n * kTileN + column, column, to, valid);
            }
        });
    }

  private:
    static constexpr int kPanelStride = kTileK;

    void allocate(Workspace& workspace) {
        pixels_ = allocate_pixels(p_, workspace);
        zeros_ = workspace.floats(source_all_ + kColumns);
        lane_of_ = workspace.take<IntVec>(source_);
        merging_.lane_of = lane_of_;
        for (int buffer = 0; buffer < kBuffers; ++buffer) {
            segments_[buffer] = workspace.take<Segment>(segments_most_);
            rows_[buffer] = workspace.take<const float*>(segments_most_ * kTableRows);
            const int64_t width = merges_ ? segments_most_ * merged_width() : kPanelStride;
            if constexpr (kPacksA) a_[buffer] = workspace.floats(kTableRows * width);
        }
        const int64_t up_front = group_count_ * n_tiles * (k_tiles_most_ + 1) * panel_size();
        if (b_up_front_) {
            filter_panels_ = workspace.floats(up_front);
        } else if (!kBInPlace) {
            filter_panels_ = workspace.floats(kBuffers * panel_size());
        }
    }

    int64_t column_step() const { return kUsesDots && !merges_ ? kVectors : kColumns; }
    int64_t panel_size() const { return divide_up(tile_k_, kLanes) * kLanes * minimum(kTileN, divide_up(columns_, kColumns) * kColumns); }
    int64_t block_size() const { return divide_up(tile_k_, kLanes) * kLanes * kColumns; }
    float* panel_of(float* panels, int64_t group, int64_t n, int64_t k) const {
        return panels + ((group * n_tiles + n) * k_tiles + k) * panel_size();
    }
    int64_t tile_source_step() const { return kTileN / kLanes * merging_.source_step; }
    // Source channels of a column tile of merged groups, as stored in a packed A.
    int64_t merged_width() const { return (kTileN / kLanes - 1) * merging_.source_step + kLanes; }

    // Lane j of a vector of merged groups reads source channel r of its group.
    void fill_lanes() {
        if (!merges_) return;
        for (int64_t r = 0; r < source_; ++r) {
            for (int64_t lane = 0; lane < kLanes; ++lane) {
                const int64_t group = minimum(lane / target_, merging_.groups - 1);
                lane_of_[r][lane] = static_cast<int32_t>(group * source_ + r);
            }
        }
    }

    void clear(float* target) const {
        for (int64_t i = 0; i < pixels_.count; ++i) {
            float* pixel = target + pixels_.target[i];
            for (int64_t c = 0; c < target_all_; ++c) pixel[c] = 0.0F;
        }
    }

    void pack_all() {
        for (int64_t group = 0; group < group_count_; ++group)
            for (int64_t n = 0; n < n_tiles; ++n)
                for (int64_t k = 0; k < k_tiles; ++k) pack_tile(panel_of(filter_panels_, group, n, k), group, n, k);
    }

    // Calls part(segment) for the stretches of reduction tile k, cut at the taps.
    template <class Part>
    void for_segments(int64_t k, Part part) const {
        const int64_t begin = k * tile_k_;
        const int64_t end = minimum(begin + tile_k_, k_length_);
        int64_t tap = begin / source_;
        int64_t channel = begin % source_;
        for (int64_t at = begin; at < end; ++tap, channel = 0) {
            const int64_t length = minimum(source_ - channel, end - at);
            part(Segment{tap, channel, length, at - begin, (at - begin) * kColumns});
            at += length;
        }
    }

    void cut_segments(int buffer, int64_t k) {
        int64_t count = 0;
        for_segments(k, [&](Segment segment) {
            if (kBInPlace && !merges_) segment.b = filter_offset(segment);
            segments_[buffer][count++] = segment;
        });
        segment_count_[buffer] = count;
    }

    // Offset of a segment in the filter of one forward output channel, or bwd_data input channel.
    int64_t filter_offset(const Segment& segment) const {
        const int64_t tap = pixels_.taps[segment.tap].index * (p_.c / p_.g);
        return kIsBackwardData ? segment.channel * taps_of(p_) * target_ + tap : tap + segment.channel;
    }

    const float* filter_of(int64_t group) const { return filter_all_ + group * taps_of(p_) * source_ * target_; }

    void pack_segment(int buffer, const Segment& segment, const float** table, int64_t rows, int64_t n) {
        if (merges_) {
            const int64_t width = merged_width();
            const int64_t present = minimum(width, source_all_ - n * tile_source_step());
            float* to = a_[buffer] + (segment.a / source_) * kTableRows * width;
            for (int64_t i = 0; i < rows; ++i) {
                copy_row<kernel::vector_a>(to + i * width, table[i], present);
                table[i] = to + i * width;
            }
        } else {
            float* to = a_[buffer] + segment.a;
            for (int64_t i = 0; i < rows; ++i) copy_row<kernel::vector_a>(to + i * kPanelStride, table[i], segment.length);
        }
    }

    CKH_NOINLINE void pack_tile(float* panel, int64_t group, int64_t n, int64_t k) const {
        const int64_t columns = minimum(kTileN, columns_ - n * kTileN);
        for (int64_t column = 0; column < columns; column += kColumns, panel += block_size()) {
            const int64_t first = n * kTileN + column;
            if (kernel::variant == Variant::forward && !merges_) {
                const int64_t length = minimum(tile_k_, k_length_ - k * tile_k_);
                pack_transposed(panel, filter_of(group) + first * k_length_ + k * tile_k_, k_length_, target_ - first, length);
                continue;
            }
            if (merges_) {
                const int64_t tap = k * tile_k_ / source_;
                const int64_t count = minimum(tile_k_ / source_, pixels_.tap_count - tap);
                pack_merged(panel, filter_all_, p_, merging_, first / kLanes, pixels_.taps + tap, count);
                continue;
            }
            for_segments(k, [&](const Segment& segment) {
                pack_rows(panel + segment.b, filter_of(group) + filter_offset(segment) + first, taps_of(p_) * target_,
                          target_ - first, segment.length);
            });
        }
    }

    template <int Rows>
    void dense(int a, int b, int64_t row, int64_t first, int64_t column, const Destination& to, int valid) {
        const float* const* table = rows_[a] + row;
        if constexpr (kUsesDots) {
            const float* filters[kVectors];
            const float* group = filter_of(group_);
            for (int v = 0; v < kVectors; ++v) filters[v] = group + minimum(first + v, target_ - 1) * taps_of(p_) * source_;
            dot_block<Rows, kVectors>(table, segments_[a], segment_count_[a], filters, to, valid);
        } else if constexpr (kBInPlace) {
            outer_block<Rows, kVectors, 0>(table, nullptr, segments_[a], segment_count_[a], filter_of(group_) + first,
                                           taps_of(p_) * target_, to, valid);
        } else {
            const float* panel = b_[b] + column / kColumns * block_size();
            if constexpr (kPacksA) {
                const Segment& last = segments_[a][segment_count_[a] - 1];
                const Segment whole{0, 0, last.a + last.length, 0, 0};
                outer_block<Rows, kVectors, kPanelStride>(table, a_[a] + row * kPanelStride, &whole, 1, panel, kColumns, to,
                                                          valid);
            } else {
                outer_block<Rows, kVectors, 0>(table, nullptr, segments_[a], segment_count_[a], panel, kColumns, to, valid);
            }
        }
    }

    template <int Rows>
    void merged(int a, int b, int64_t row, int64_t n, int64_t column, int64_t columns, Destination to, int valid) {
        const int64_t first = (n * kTileN + column) / kLanes;
        to.step = merging_.target_step;
        const float* panel = b_[b] + column / kColumns * block_size();
        const float* const* table = rows_[a] + row;
        const int64_t vectors = minimum(kVectors, (columns - column) / kLanes);
        for (int64_t v = 0, width; v < vectors; v += width) {
            width = width_of(vectors - v);
            Merging at = merging_;
            at.first = ((kPacksA ? column / kLanes : first) + v) * merging_.source_step;
            to.base = target_base_ + (first + v) * merging_.target_step;
            to.columns = target_all_ - (first + v) * merging_.target_step;
            merged_sized<Rows>(width, table, a, panel + v * kLanes, at, to, valid);
        }
    }

    template <int Rows>
    void merged_sized(int64_t width, const float* const* table, int a, const float* panel, const Merging& at,
                      const Destination& to, int valid) {
        const bool permutes = source_ > 1 || target_ > 1;
        for_width(width, [&](auto vectors) {
            constexpr int wide = decltype(vectors)::value;
            if (permutes) {
                merged_block<Rows, wide, true>(table, segments_[a], segment_count_[a], panel, at, to, valid);
            } else {
                merged_block<Rows, wide, false>(table, segments_[a], segment_count_[a], panel, at, to, valid);
            }
        });
    }

    Problem p_;
    bool merges_, b_up_front_, packs_runs_;
    int64_t source_all_, target_all_, source_, target_;  // channels: of all groups, of one
    int64_t columns_, tile_k_, k_tiles_most_, segments_most_, group_count_;
    int64_t k_length_ = 0, begin_ = 0, end_ = 0, group_ = 0;
    Merging merging_;
    Pixels pixels_;
    float* zeros_;
    IntVec* lane_of_;
    Segment* segments_[2];
    int64_t segment_count_[2];
    const float** rows_[2];
    float* a_[2];
    float* b_[2];
    float* filter_panels_ = nullptr;
    const float* filter_all_ = nullptr;
    const float* source_base_ = nullptr;
    float* target_base_ = nullptr;
};

}  // namespace ckh
