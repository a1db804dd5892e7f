// The arguments of a matrix product with further tensors.
#pragma once

#include <array>

#include "multi_d_types.hpp"

namespace ckh {

inline auto host_arguments(const Problem& p, const Operands& operands) {
    const auto m = static_cast<ck_tile::index_t>(p.m);
    const auto n = static_cast<ck_tile::index_t>(p.n);
    const auto k = static_cast<ck_tile::index_t>(p.k);
    std::array<const void*, kernel::num_d> ds;
    std::array<ck_tile::index_t, kernel::num_d> strides;
    for (ck_tile::index_t i = 0; i < kernel::num_d; ++i) {
        ds[i] = operands.ds[i];
        strides[i] = static_cast<ck_tile::index_t>(p.d_strides[i]);
    }
    return ck_tile::UniversalGemmHostArgs<1, 1, kernel::num_d>({operands.a}, {operands.b}, ds, operands.out, 1, m, n, k,
                                                               {a_is_row_major ? k : m}, {b_is_row_major ? n : k},
                                                               strides, n);
}

}  // namespace ckh
