// Stub: the matrix instructions, of which the epilogues want the one that the block used. Of some types and tiles only.
#pragma once

#include "ck_tile/core/element_types.hpp"

namespace ck_tile {

enum class WGAttrNumAccessEnum { Single, Double };

namespace impl {
namespace warp_gemm_dispatcher {

template <typename AType,
          typename BType,
          typename AccType,
          index_t MPerWave,
          index_t NPerWave,
          index_t KPerWave,
          bool TransposeC,
          bool SwizzleA = false,
          bool UseStructuredSparsity = false,
          WGAttrNumAccessEnum AttrNumAccess = WGAttrNumAccessEnum::Single>
struct Dispatcher;

// clang-format off
template<> struct Dispatcher<float, float, float, 16, 16, 16, false> { using Type = int; };
template<> struct Dispatcher<float, float, float, 32, 32,  8, false> { using Type = int; };
template<> struct Dispatcher<half_t, half_t, float, 32, 32,  8, false> { using Type = int; };
template<> struct Dispatcher<half_t, half_t, float, 32, 32,  8,  true> { using Type = int; };
template<> struct Dispatcher<half_t, half_t, float, 32, 32, 16, false> { using Type = int; };
template<> struct Dispatcher<half_t, half_t, float, 16, 16, 32, false, true> { using Type = int; };
template<> struct Dispatcher<bf16_t, bf16_t, float, 32, 32,  8, false> { using Type = int; };
template<> struct Dispatcher<bf16_t, bf16_t, float, 32, 32, 16, false> { using Type = int; };
template<> struct Dispatcher<fp8_t, fp8_t, float, 32, 32,  16, false> { using Type = int; };
template<> struct Dispatcher<fp8_t, bf8_t, float, 16, 16,  32, false> { using Type = int; };
template<> struct Dispatcher<bf8_t, bf8_t, float, 16, 16,  32, false> { using Type = int; };
template<> struct Dispatcher<int8_t, int8_t, int32_t, 32, 32, 16, false> { using Type = int; };
template<typename A, typename B, WGAttrNumAccessEnum I>
struct Dispatcher<A, B, float, 16, 16, 128, false, false, false, I> { using Type = int; };
// clang-format on

}  // namespace warp_gemm_dispatcher
}  // namespace impl

template <typename A, typename B, typename Acc, index_t M, index_t N, index_t K, bool TransposeC>
using WarpGemmDispatcher = typename impl::warp_gemm_dispatcher::Dispatcher<A, B, Acc, M, N, K, TransposeC>::Type;

}  // namespace ck_tile
