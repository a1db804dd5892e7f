// Which source pixel a destination pixel reads through each tap of the filter.
//
// Forward and bwd_weight: destination = output, source = input, one phase. bwd_data: destination = input, source =
// output gradient; destination pixels fall into one phase per residue of (position + pad) modulo the stride, and within
// a phase the taps that contribute are the same for all pixels, so that no tap is visited in vain.
#pragma once

#include "problem.hpp"
#include "workspace.hpp"

namespace ckh {

constexpr bool kIsBackwardData = kernel::variant == Variant::bwd_data;

// One spatial axis of one phase: destination first + j*step reads source base + j*base_step + offset(tap).
struct Axis {
    int64_t first, step, count, base, base_step;
    int64_t source_size, taps, dilation, stride, residue;

    bool uses(int64_t tap) const { return !kIsBackwardData || tap * dilation % stride == residue; }
    int64_t offset(int64_t tap) const {
        return kIsBackwardData ? -(tap * dilation - residue) / stride : tap * dilation;
    }
};

inline Axis make_axis(int64_t in, int64_t out, int64_t taps, int64_t stride, int64_t pad, int64_t dilation,
                      int64_t residue) {
    if constexpr (!kIsBackwardData) return {0, 1, out, -pad, stride, in, taps, dilation, stride, 0};
    const int64_t first = ((residue - pad) % stride + stride) % stride;
    const int64_t count = first < in ? (in - first - 1) / stride + 1 : 0;
    return {first, stride, count, (first + pad - residue) / stride, 1, out, taps, dilation, stride, residue};
}

struct Tap {
    int64_t d, h, w;  // offset in source pixels
    int64_t source;   // the same in elements of the source
    int64_t index;    // position in the filter
};

// Destination pixels [0, count) of a phase, one array per quantity so that loops over pixels vectorise.
struct Pixels {
    int64_t count, row;                   // `row`: pixels in one row of the image
    int64_t *source, *d, *h, *w, *target;  // element offset of the source at tap offset 0; its position; element offset
    int64_t size_d, size_h, size_w;
    Tap* taps;
    int64_t tap_count;

    // Addresses of pixels [begin, begin + rows) through one tap; `outside` where the tap falls into the padding.
    CKH_NOINLINE void addresses(const float** to, const float* image, const float* outside, int64_t begin, int64_t rows,
                   const Tap& tap) const {
        const float* shifted = image + tap.source;
        for (int64_t i = 0; i < rows; ++i) {
            const bool inside = (static_cast<uint64_t>(h[begin + i] + tap.h) < static_cast<uint64_t>(size_h)) &
                                (static_cast<uint64_t>(w[begin + i] + tap.w) < static_cast<uint64_t>(size_w)) &
                                (static_cast<uint64_t>(d[begin + i] + tap.d) < static_cast<uint64_t>(size_d));
            const float* address = shifted + source[begin + i];
            to[i] = inside ? address : outside;
        }
    }
};

inline Pixels allocate_pixels(const Problem& p, Workspace& workspace) {
    const int64_t count = kIsBackwardData ? input_pixels(p) : output_pixels(p);
    Pixels pixels{};
    pixels.source = workspace.take<int64_t>(count);
    pixels.d = workspace.take<int64_t>(count);
    pixels.h = workspace.take<int64_t>(count);
    pixels.w = workspace.take<int64_t>(count);
    pixels.target = workspace.take<int64_t>(count);
    pixels.taps = workspace.take<Tap>(taps_of(p));
    return pixels;
}

CKH_NOINLINE inline void fill_phase(Pixels& to, const Problem& p, const Axis& d, const Axis& h, const Axis& w) {
    const int64_t source_channels = kIsBackwardData ? p.k : p.c;
    const int64_t target_channels = kIsBackwardData ? p.c : p.k;
    const int64_t target_d = kIsBackwardData ? p.di : p.do_;
    const int64_t target_h = kIsBackwardData ? p.hi : p.ho;
    const int64_t target_w = kIsBackwardData ? p.wi : p.wo;
    to.size_d = d.source_size;
    to.size_h = h.source_size;
    to.size_w = w.source_size;
    to.row = w.count;
    int64_t i = 0;
    for (int64_t n = 0; n < p.n; ++n)
        for (int64_t jd = 0; jd < d.count; ++jd)
            for (int64_t jh = 0; jh < h.count; ++jh) {
                const int64_t at_d = d.base + jd * d.base_step;
                const int64_t at_h = h.base + jh * h.base_step;
                const int64_t source_row = ((n * to.size_d + at_d) * to.size_h + at_h) * to.size_w;
                const int64_t target_row =
                    ((n * target_d + d.first + jd * d.step) * target_h + h.first + jh * h.step) * target_w;
                for (int64_t jw = 0; jw < w.count; ++jw, ++i) {
                    const int64_t at_w = w.base + jw * w.base_step;
                    to.source[i] = (source_row + at_w) * source_channels;
                    to.d[i] = at_d;
                    to.h[i] = at_h;
                    to.w[i] = at_w;
                    to.target[i] = (target_row + w.first + jw * w.step) * target_channels;
                }
            }
    to.count = i;
    to.tap_count = 0;
    for (int64_t z = 0; z < p.z; ++z)
        for (int64_t y = 0; y < p.y; ++y)
            for (int64_t x = 0; x < p.x; ++x) {
                if (!(d.uses(z) && h.uses(y) && w.uses(x))) continue;
                Tap tap{d.offset(z), h.offset(y), w.offset(x), 0, (z * p.y + y) * p.x + x};
                tap.source = ((tap.d * to.size_h + tap.h) * to.size_w + tap.w) * source_channels;
                to.taps[to.tap_count++] = tap;
            }
}

// Calls phase(pixels) with the tables of every phase in turn.
template <class Phase>
void for_phases(Pixels& pixels, const Problem& p, Phase phase) {
    const int64_t phases_d = kIsBackwardData ? p.stride_d : 1;
    const int64_t phases_h = kIsBackwardData ? p.stride_h : 1;
    const int64_t phases_w = kIsBackwardData ? p.stride_w : 1;
    for (int64_t rd = 0; rd < phases_d; ++rd)
        for (int64_t rh = 0; rh < phases_h; ++rh)
            for (int64_t rw = 0; rw < phases_w; ++rw) {
                fill_phase(pixels, p, make_axis(p.di, p.do_, p.z, p.stride_d, p.pad_d, p.dilation_d, rd),
                           make_axis(p.hi, p.ho, p.y, p.stride_h, p.pad_h, p.dilation_h, rh),
                           make_axis(p.wi, p.wo, p.x, p.stride_w, p.pad_w, p.dilation_w, rw));
                if (pixels.count > 0) phase(pixels);
            }
}

// Calls band(first, last) over the pixels: the whole image, or with split_image bands of whole rows whose source fits
// half of a usual second-level cache.
template <class Band>
void for_bands(const Pixels& pixels, int64_t source_channels, Band band) {
    if constexpr (!kernel::split_image) {
        band(0, pixels.count);
    } else {
        constexpr int64_t bytes = 512 * 1024;
        const int64_t row_bytes = pixels.size_w * source_channels * static_cast<int64_t>(sizeof(float));
        const int64_t rows = maximum(bytes / row_bytes, divide_up(4 * kernel::tile_m, pixels.row));
        const int64_t step = rows * pixels.row;
        for (int64_t first = 0; first < pixels.count; first += step) {
            band(first, minimum(first + step, pixels.count));
        }
    }
}

}  // namespace ckh
