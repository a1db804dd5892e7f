// The second stage of backward weight, to be included after an interface's launch: CK Tile's elementwise kernel rounds the accumulators that the first stage left
// in the workspace. Its tile is the one that CK Tile's own two-stage convolution takes.
#pragma once

#include "ck_tile/ops/elementwise.hpp"
#include "types.hpp"

namespace ckh {

// A template, so that kernels of one stage compile nothing of it.
template <class To>
struct SecondStage {
    using Tile = ck_tile::sequence<2048>;
    using Work = ck_tile::ElementWiseShape<ck_tile::sequence<8>, Tile, ck_tile::sequence<64>, Accumulator>;
    using Rounding = ck_tile::ElementWisePipelineProblem<Accumulator, Accumulator, To, Work,
                                                         ck_tile::element_wise::UnaryConvert>;
    using Kernel = ck_tile::ElementWiseKernel<Rounding, ck_tile::ElementWiseDefaultPolicy>;

    static constexpr int64_t block_elements = Tile::at(ck_tile::number<0>{});

    static ck_tile::index_t columns(const Problem& p) {
        return static_cast<ck_tile::index_t>(p.c / p.g * p.z * p.y * p.x);
    }

    // The filter as a matrix with a row for each output channel.
    static auto sizes(const Problem& p) {
        return ck_tile::make_tuple(static_cast<ck_tile::index_t>(p.k), columns(p));
    }

    static bool supports(const Problem& p) { return Kernel::IsSupportedArgument(sizes(p)); }

    static Launch prepare(const Problem& p, const Operands& operands) {
        const auto strides = ck_tile::make_tuple(columns(p), ck_tile::index_t{1});
        const auto from = ck_tile::make_tuple(static_cast<Accumulator*>(operands.workspace));
        const dim3 grid(static_cast<unsigned>(divide_up(filter_elements(p), block_elements)));
        return starting(Kernel{}, grid, sizes(p), strides, strides, from, static_cast<To*>(operands.out));
    }
};

}  // namespace ckh
