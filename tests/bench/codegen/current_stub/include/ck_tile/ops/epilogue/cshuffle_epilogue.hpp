// Stub: the epilogue. Whether it stores or adds is chosen by its caller's window, not by a parameter.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

template <typename AsDataType_,
          typename BsDataType_,
          typename DsDataType_,
          typename AccDataType_,
          typename ODataType_,
          typename DsLayout_,
          typename ELayout_,
          typename CDElementwise_,
          index_t kM_,
          index_t kN_,
          index_t MWave_,
          index_t NWave_,
          index_t MPerXdl_,
          index_t NPerXdl_,
          index_t KPerXdl_,
          bool isCTransposed_,
          index_t kNumWaveGroups_ = 1,
          bool FixedVectorSize_ = false,
          index_t VectorSizeC_ = 1,
          index_t BlockedXDLN_PerWarp_ = 1,  // matrix instructions side by side
          bool DoubleSmemBuffer_ = false>
struct CShuffleEpilogueProblem {
    using AsDataType = AsDataType_;
    using BsDataType = BsDataType_;
    using DsDataType = DsDataType_;
    using AccDataType = AccDataType_;
    using ODataType = ODataType_;
    using DsLayout = DsLayout_;
    using ELayout = ELayout_;
    using CDElementwise = CDElementwise_;
    using Tile = sequence<kM_, kN_>;
    using Waves = sequence<MWave_, NWave_>;
    using WarpTile = sequence<MPerXdl_, NPerXdl_, KPerXdl_>;
    static constexpr bool isCTransposed = isCTransposed_;
    static constexpr index_t kNumWaveGroups = kNumWaveGroups_;
    static constexpr index_t VectorSizeC = VectorSizeC_;
    static constexpr bool DoubleSmemBuffer = DoubleSmemBuffer_;
    static_assert(FixedVectorSize_ && BlockedXDLN_PerWarp_ == 1);
    static_assert(DsDataType::size() == DsLayout::size());
};

template <typename Problem_, typename Policy_ = void>
struct CShuffleEpilogue {
    using Problem = Problem_;
    using DsDataType = typename Problem::DsDataType;
    using DsLayout = typename Problem::DsLayout;
    using ODataType = typename Problem::ODataType;
    using CDElementwise = typename Problem::CDElementwise;

    CK_TILE_DEVICE void operator()(ODataType*, const BlockTile&, void*) const {}
    CK_TILE_HOST_DEVICE static constexpr index_t GetSmemSize() { return 1; }
};

}  // namespace ck_tile
