// Stub: the elementwise kernel that rounds a workspace.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

template <typename BlockWarps, typename BlockTile, typename WarpTile, typename ComputeDataType>
struct ElementWiseShape {
    static constexpr index_t kBlockM = BlockTile::at(number<0>{});
    static constexpr index_t kBlockSize = get_warp_size() * BlockWarps::at(number<0>{});
    static_assert(WarpTile::at(number<0>{}) % get_warp_size() == 0 && kBlockM % kBlockSize == 0);
};

template <typename XDataType_, typename ComputeDataType_, typename YDataType_, typename BlockShape_,
          typename ElementWiseOperation_, bool kPad_ = true>
struct ElementWisePipelineProblem {
    using YDataType = YDataType_;
    using BlockShape = BlockShape_;
    static_assert(std::is_empty_v<ElementWiseOperation_> && std::is_floating_point_v<XDataType_>);
};

struct ElementWiseDefaultPolicy {};

template <typename Problem_, typename Policy_>
struct ElementWiseKernel {
    using YDataType = typename Problem_::YDataType;
    static constexpr index_t kBlockSize = Problem_::BlockShape::kBlockSize;
    CK_TILE_HOST static constexpr auto BlockSize() { return kBlockSize; }

    template <typename... XDataType, typename DimsLens, typename DimsInStrides, typename DimsOutStrides>
    CK_TILE_DEVICE void operator()(const DimsLens, const DimsInStrides, const DimsOutStrides,
                                   const tuple<XDataType...>&, YDataType*) const {
        static_assert(DimsLens::size() == DimsInStrides::size() && DimsLens::size() == DimsOutStrides::size());
    }

    template <typename... Ints>
    CK_TILE_HOST static bool IsSupportedArgument(const tuple<Ints...>&) {
        return true;
    }
};

}  // namespace ck_tile
