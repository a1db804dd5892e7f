// The arguments of a plain matrix product, in every interface of CK Tile.
#pragma once

#include "gemm_types.hpp"

namespace ckh {

// Leading dimensions of dense operands.
inline auto host_arguments(const Problem& p, const Operands& operands) {
    const auto m = static_cast<ck_tile::index_t>(p.m);
    const auto n = static_cast<ck_tile::index_t>(p.n);
    const auto k = static_cast<ck_tile::index_t>(p.k);
    return ck_tile::UniversalGemmHostArgs<1, 1, 0>({operands.a}, {operands.b}, {}, operands.out,
                                                   static_cast<ck_tile::index_t>(p.split_k), m, n, k,
                                                   {a_is_row_major ? k : m}, {b_is_row_major ? n : k}, {}, n);
}

}  // namespace ckh
