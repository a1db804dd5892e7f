// The epilogue of a GEMM kernel with further tensors.
#pragma once

#include "gemm_types.hpp"

namespace ckh {

// What a launch reads and writes, all on the device: A, B and E, each dense in its layout, and the further tensors.
struct Operands {
    const void* a;
    const void* b;
    const void* ds[kernel::num_d];
    void* out;
    void* workspace;
};

using Ds = std::conditional_t<kernel::num_d == 1, ck_tile::tuple<Output>, ck_tile::tuple<Output, Output>>;
using DLayouts = std::conditional_t<kernel::num_d == 1, ck_tile::tuple<RowMajor>, ck_tile::tuple<RowMajor, RowMajor>>;
using kernel::Elementwise;

}  // namespace ckh
