// The pipelines of CK Tile's interface of late 2025.
#pragma once

namespace ckh {

// Transposed operands are loaded with the width that the problem states, but CK Tile's policies shuffle them with their own:
// these shuffle what was loaded.
template <class Policy>
struct LoadPolicy : Policy {
    template <class P, ck_tile::index_t Lines, ck_tile::index_t Width, ck_tile::tile_distribution_pattern Pattern>
    CK_TILE_HOST_DEVICE static constexpr auto Shuffled() {
        return ck_tile::tile_distribution_encoding_pattern_2d<P::kBlockSize, P::BlockGemmShape::kK, Lines, Width, Pattern,
                                                              P::NumWaveGroups>::
            make_shuffled_2d_static_tile_distribution();
    }
    template <class P>
    CK_TILE_HOST_DEVICE static constexpr auto MakeShuffledARegTileDistribution() {
        return Shuffled<P, P::BlockGemmShape::kM, P::VectorSizeA, Policy::getATileAccessPattern()>();
    }
    template <class P>
    CK_TILE_HOST_DEVICE static constexpr auto MakeShuffledBRegTileDistribution() {
        return Shuffled<P, P::BlockGemmShape::kN, P::VectorSizeB, Policy::getBTileAccessPattern()>();
    }
};

}  // namespace ckh

#include "looped_pipelines.hpp"
