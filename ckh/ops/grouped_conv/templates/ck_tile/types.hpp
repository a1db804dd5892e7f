// Types that follow from a kernel's parameters and are the same for every interface of CK Tile.
#pragma once

#include "check.hpp"
#include "vocabulary.hpp"

namespace ckh {

using Accumulator = float;
using NoTensors = ck_tile::tuple<>;

namespace convolution = ck_tile::tensor_layout::convolution;
using InLayout = std::conditional_t<kernel::ndim_spatial == 3, convolution::NDHWGC, convolution::NHWGC>;
using WeiLayout = std::conditional_t<kernel::ndim_spatial == 3, convolution::GKZYXC, convolution::GKYXC>;
using OutLayout = std::conditional_t<kernel::ndim_spatial == 3, convolution::NDHWGK, convolution::NHWGK>;

// A type of this kernel alone. In a unit of several kernels, functions of CK Tile's that two of them share would have more
// callers than in a kernel compiled alone, and the compiler calls such a function instead of inlining it.
struct Shape
    : ck_tile::TileGemmShape<ck_tile::sequence<kernel::tile_m, kernel::tile_n, kernel::tile_k>,
                             ck_tile::sequence<kernel::wave_m, kernel::wave_n, kernel::wave_k>,
                             ck_tile::sequence<kernel::warp_tile_m, kernel::warp_tile_n, kernel::warp_tile_k>> {};

inline ck_tile::conv::ConvParam conv_param(const Problem& p) {
    using Sizes = std::vector<ck_tile::index_t>;
    const auto sizes = [](int64_t d, int64_t h, int64_t w) {
        const auto narrow = [](int64_t size) { return static_cast<ck_tile::index_t>(size); };
        return kernel::ndim_spatial == 3 ? Sizes{narrow(d), narrow(h), narrow(w)} : Sizes{narrow(h), narrow(w)};
    };
    const Sizes pads = sizes(p.pad_d, p.pad_h, p.pad_w);
    return ck_tile::conv::ConvParam(kernel::ndim_spatial, static_cast<ck_tile::index_t>(p.g),
                                    static_cast<ck_tile::index_t>(p.n), static_cast<ck_tile::index_t>(p.k / p.g),
                                    static_cast<ck_tile::index_t>(p.c / p.g), sizes(p.z, p.y, p.x),
                                    sizes(p.di, p.hi, p.wi), sizes(p.stride_d, p.stride_h, p.stride_w),
                                    sizes(p.dilation_d, p.dilation_h, p.dilation_w), pads, pads);
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t filter_elements(const Problem& p) { return p.k * (p.c / p.g) * p.z * p.y * p.x; }
inline int64_t input_elements(const Problem& p) { return p.n * p.c * p.di * p.hi * p.wi; }
inline int64_t output_elements(const Problem& p) { return p.n * p.k * p.do_ * p.ho * p.wo; }

}  // namespace ckh
