// Stub: the epilogue. Whether it stores or adds is chosen by its caller's window, not by a parameter.
#pragma once

#include "ck_tile/ops/gemm/warp/warp_gemm_dispatcher.hpp"

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
    using WG = WarpGemmDispatcher<AsDataType_, BsDataType_, AccDataType_, MPerXdl_, NPerXdl_, KPerXdl_, isCTransposed_>;
    using Tile = sequence<kM_, kN_>;
    using Waves = sequence<MWave_, NWave_>;
    using WarpTile = sequence<MPerXdl_, NPerXdl_, KPerXdl_>;
    static constexpr bool isCTransposed = isCTransposed_;
    static constexpr index_t kNumWaveGroups = kNumWaveGroups_;
    static constexpr index_t NPerIteration = NPerXdl_ * NWave_;
    static constexpr bool FixedVectorSize = FixedVectorSize_;
    static constexpr index_t VectorSizeC = VectorSizeC_;
    static constexpr bool DoubleSmemBuffer = DoubleSmemBuffer_;
    static_assert(kM_ % (MPerXdl_ * MWave_) == 0 && kN_ % NPerIteration == 0);
    static_assert(kNumWaveGroups_ > 0 && BlockedXDLN_PerWarp_ == 1);
    static_assert(std::is_same_v<ELayout_, tensor_layout::gemm::RowMajor>);
    static_assert(std::is_same_v<CDElementwise_, element_wise::PassThrough>);
    static_assert(DsDataType::size() == 0 && DsLayout::size() == 0);
};

template <typename Problem_, typename Policy_ = void>
struct CShuffleEpilogue {
    using Problem = Problem_;
    using DsDataType = typename Problem::DsDataType;
    using DsLayout = typename Problem::DsLayout;
    using ODataType = typename Problem::ODataType;
    using CDElementwise = typename Problem::CDElementwise;

    CK_TILE_HOST_DEVICE static constexpr index_t GetVectorSizeC() {
        if constexpr (Problem::FixedVectorSize) return Problem::VectorSizeC;
        constexpr index_t most = 16 / sizeof(ODataType);
        return Problem::NPerIteration < most ? Problem::NPerIteration : most;
    }
    CK_TILE_DEVICE void operator()(ODataType*, const BlockTile&, void*) const {}
    CK_TILE_HOST_DEVICE static constexpr index_t GetSmemSize() { return 1; }
};

}  // namespace ck_tile
