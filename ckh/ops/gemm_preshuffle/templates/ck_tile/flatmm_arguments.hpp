// CK Tile's flatmm in the interfaces of 2025: its kernel class, and its arguments, without scales.
#pragma once

#include "gemm_types.hpp"

namespace ckh {

template <class... Parts>
struct KernelOf : ck_tile::FlatmmKernel<Parts...> {
    static constexpr bool PersistentKernel = false;
};

inline auto host_arguments(const Problem& p, const Operands& operands) {
    const auto m = static_cast<ck_tile::index_t>(p.m);
    const auto n = static_cast<ck_tile::index_t>(p.n);
    const auto k = static_cast<ck_tile::index_t>(p.k);
    return ck_tile::FlatmmHostArgs<>(operands.a, operands.b, {}, operands.out, 1, m, n, k, k, k, {}, n);
}

}  // namespace ckh
