// Stub: the epilogue that stores results where they are, one by one.
#pragma once

#include "ck_tile/ops/gemm/warp/warp_gemm_dispatcher.hpp"

namespace ck_tile {

template <typename AccDataType_, typename ODataType_, bool kPadM_, bool kPadN_, bool UseRawStore_ = true>
struct Default2DEpilogueProblem {
    using AccDataType = AccDataType_;
    using ODataType = ODataType_;
    static constexpr bool UseRawStore = UseRawStore_;
};

template <typename AsDataType_,
          typename BsDataType_,
          typename DsDataType_,
          typename AccDataType_,
          typename ODataType_,
          typename DsLayout_,
          typename CLayout_,
          typename CDElementwise_,
          index_t kM_,
          index_t kN_,
          bool kPadM_,
          bool kPadN_,
          index_t kMPerXdl_,
          index_t kNPerXdl_,
          index_t kKPerXdl_,
          bool isCTransposed_,
          bool UseRawStore_ = true>
struct DefaultGemm2DEpilogueProblem
    : public Default2DEpilogueProblem<AccDataType_, ODataType_, kPadM_, kPadN_, UseRawStore_> {
    using DsDataType = DsDataType_;
    using DsLayout = DsLayout_;
    using WG =
        WarpGemmDispatcher<AsDataType_, BsDataType_, AccDataType_, kMPerXdl_, kNPerXdl_, kKPerXdl_, isCTransposed_>;
    static_assert(kM_ % kMPerXdl_ == 0 && kN_ % kNPerXdl_ == 0);
    static_assert(std::is_same_v<CLayout_, tensor_layout::gemm::RowMajor>);
    static_assert(std::is_same_v<CDElementwise_, element_wise::PassThrough>);
    static_assert(DsDataType::size() == 0 && DsLayout::size() == 0);
};

template <typename Problem_, typename Policy_ = void>
struct DefaultGemm2DEpilogue {
    using Problem = Problem_;
    using DsDataType = typename Problem::DsDataType;
    using DsLayout = typename Problem::DsLayout;
    using ODataType = typename Problem::ODataType;

    CK_TILE_HOST_DEVICE static constexpr auto GetVectorSizeC() { return 1; }
    CK_TILE_HOST_DEVICE static constexpr index_t GetSmemSize() { return 0; }
    CK_TILE_DEVICE void operator()(ODataType*, const BlockTile&, void*) const {
        static_assert(!Problem::UseRawStore || sizeof(ODataType) == 2, "raw additions do not compile");
    }
};

}  // namespace ck_tile
