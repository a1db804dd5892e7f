// Stub: which tile a block works on.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

template <typename BlockGemmShapeType, index_t GroupNum, index_t M01>
struct GemmSpatiallyLocalTilePartitioner {
    using BlockGemmShape = BlockGemmShapeType;
    static constexpr index_t MPerBlock = BlockGemmShape::kM;
    static constexpr index_t NPerBlock = BlockGemmShape::kN;
    static constexpr index_t KPerBlock = BlockGemmShape::kK;
    static_assert(GroupNum > 0 && M01 > 0);
    CK_TILE_HOST_DEVICE static index_t GridSize(index_t M, index_t N) { return (M / MPerBlock) * (N / NPerBlock); }
};

}  // namespace ck_tile
