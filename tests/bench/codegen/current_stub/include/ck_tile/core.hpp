// Stub of CK Tile's current interface, written for ckh's tests: declarations as published, bodies as short as can be.
// This one: the vocabulary of ck_tile/core.hpp that ckh's templates or the other stubs use.
#pragma once

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#define CK_TILE_HOST inline __host__
#define CK_TILE_DEVICE inline __device__
#define CK_TILE_HOST_DEVICE inline __host__ __device__
#define CK_TILE_MIN_BLOCK_PER_CU 2

namespace ck_tile {

using index_t = int32_t;
using long_index_t = int64_t;
using half_t = _Float16;
using fp16_t = _Float16;
using bf16_t = __bf16;

template <class T>
using remove_cvref_t = std::remove_cv_t<std::remove_reference_t<T>>;

template <index_t V>
struct number {
    static constexpr index_t value = V;
    constexpr operator index_t() const { return V; }
};

template <index_t... Is>
struct sequence {
    template <index_t I>
    static constexpr index_t at(number<I>) {
        constexpr index_t values[] = {Is...};
        return values[I];
    }
};

template <class... Ts>
struct tuple : std::tuple<Ts...> {
    using std::tuple<Ts...>::tuple;
    static constexpr index_t size() { return sizeof...(Ts); }
};

template <class... Ts>
constexpr auto make_tuple(Ts&&... values) {
    return tuple<remove_cvref_t<Ts>...>(std::forward<Ts>(values)...);
}

constexpr index_t get_warp_size() { return 64; }

// What a kernel hands to a pipeline in place of the tile windows, which the templates never name.
struct TileWindow {};
struct BlockTile {};

namespace tensor_layout {
namespace gemm {
struct RowMajor {};
struct ColumnMajor {};
}  // namespace gemm
namespace convolution {
struct NHWGC {};
struct NDHWGC {};
struct GKYXC {};
struct GKZYXC {};
struct NHWGK {};
struct NDHWGK {};
}  // namespace convolution
}  // namespace tensor_layout

namespace element_wise {
struct PassThrough {};
struct UnaryConvert {};
}  // namespace element_wise

enum class GemmPipelineScheduler { Default, Intrawave, Interwave };
enum class DataCachePrefetchKind { None };
enum class ConvolutionSpecialization { Default, Filter1x1Pad0, Filter1x1Stride1Pad0, Filter3x3 };

}  // namespace ck_tile
