// Stub: the convolution as CK Tile's host code states it, and launching.
#pragma once

#include <vector>

#include "ck_tile/host/kernel_launch.hpp"

namespace ck_tile::conv {

struct ConvParam {
    // Dimensions, groups, batch, output and input channels of a group; filter, input, strides, dilations, both pads.
    ConvParam(index_t, index_t, index_t, index_t, index_t, const std::vector<index_t>&, const std::vector<index_t>&,
              const std::vector<index_t>&, const std::vector<index_t>&, const std::vector<index_t>&,
              const std::vector<index_t>&) {}
};

}  // namespace ck_tile::conv
