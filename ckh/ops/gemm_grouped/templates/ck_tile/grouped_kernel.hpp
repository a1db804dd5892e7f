// CK Tile's grouped kernel, which says of itself what gemm_universal's headers ask of a kernel. To be included after the
// interface's header.
#pragma once

#include <utility>
#include <vector>

#include "ck_tile/core.hpp"
#include "ck_tile/host.hpp"
#include "ck_tile/ops/gemm.hpp"

namespace ck_tile {

template <class TilePartitioner, class GemmPipeline, class EpiloguePipeline>
struct CkhGroupedGemmKernel : GroupedGemmKernel<TilePartitioner, GemmPipeline, EpiloguePipeline> {
    using Grouped = GroupedGemmKernel<TilePartitioner, GemmPipeline, EpiloguePipeline>;
    static constexpr bool PersistentKernel = Grouped::UsePersistentKernel;

    CK_TILE_HOST static auto MakeKernelArgs(const std::vector<CkhGroup>& groups) {
        return Grouped::MakeKargs(groups);
    }
};

// A pipeline that waits for the waves that still read the tile before from LDS, which a persistent grouped kernel of 2025
// does not.
template <class Pipeline>
struct CkhPipelineOfNextTile : Pipeline {
    template <class... Arguments>
    CK_TILE_DEVICE auto operator()(Arguments&&... arguments) const {
        block_sync_lds();
        return Pipeline::operator()(std::forward<Arguments>(arguments)...);
    }
};

}  // namespace ck_tile
