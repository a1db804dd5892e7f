// Stub: a GEMM's compile-time choices that are no types of its data.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

template <bool kPadM_,
          bool kPadN_,
          bool kPadK_,
          bool DoubleSmemBuffer_,
          typename AsLayout_,
          typename BsLayout_,
          typename CLayout_,
          bool TransposeC_ = false,
          bool UseStructuredSparsity_ = false,
          bool UsePersistentKernel_ = false,
          index_t NumWaveGroups_ = 1,
          bool Preshuffle_ = false,
          int VectorSize_ = 16,
          bool LargeTensors_ = false,
          DataCachePrefetchKind DataCachePrefetchA_ = DataCachePrefetchKind::None,
          DataCachePrefetchKind DataCachePrefetchB_ = DataCachePrefetchKind::None>
struct TileGemmUniversalTraits {
    static constexpr bool kPadM = kPadM_;
    static constexpr bool kPadN = kPadN_;
    static constexpr bool kPadK = kPadK_;
    static constexpr bool DoubleSmemBuffer = DoubleSmemBuffer_;
    static constexpr bool UsePersistentKernel = UsePersistentKernel_;
    static constexpr bool Preshuffle = Preshuffle_;
    static constexpr bool LargeTensors = LargeTensors_;
    static constexpr bool TransposeC = TransposeC_;
    static constexpr index_t NumWaveGroups = NumWaveGroups_;
    using AsLayout = AsLayout_;
    using BsLayout = BsLayout_;
    using CLayout = CLayout_;
    static_assert(!TransposeC_ && !UseStructuredSparsity_ && !Preshuffle_ && VectorSize_ == 16);
};

}  // namespace ck_tile
