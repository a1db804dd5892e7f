// CK Tile's batched kernel, which says of itself what gemm_universal's headers ask of a kernel.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/host.hpp"
#include "ck_tile/ops/gemm.hpp"

namespace ck_tile {

template <class TilePartitioner, class GemmPipeline, class EpiloguePipeline>
struct CkhBatchedGemmKernel : BatchedGemmKernel<TilePartitioner, GemmPipeline, EpiloguePipeline> {
    static constexpr bool PersistentKernel = false;
};

}  // namespace ck_tile

namespace ckh {

template <class... Parts>
using KernelOf = ck_tile::CkhBatchedGemmKernel<Parts...>;

}  // namespace ckh
