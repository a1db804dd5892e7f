// What differs between the interfaces of 2025: here late 2025, a group's arguments and how a kernel's function is named.
#pragma once

#include <array>

#include "ck_tile/core.hpp"
#include "ck_tile/host.hpp"
#include "ck_tile/ops/gemm.hpp"

namespace ck_tile {

using CkhGroup = GroupedGemmHostArgs<>;

}  // namespace ck_tile

namespace ckh {

inline ck_tile::CkhGroup group_of(const void* a, const void* b, void* c, ck_tile::index_t split_k, ck_tile::index_t m,
                                  ck_tile::index_t n, ck_tile::index_t k, ck_tile::index_t lda, ck_tile::index_t ldb) {
    return {a, b, {}, c, split_k, m, n, k, lda, ldb, {}, n};
}

template <class Kernel, class Pointer>
constexpr auto function_taking = ck_tile::kentry<1, Kernel, Pointer, ck_tile::index_t>;

}  // namespace ckh
