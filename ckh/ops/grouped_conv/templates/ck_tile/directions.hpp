// What a direction makes of a convolution, in every interface. To be included after an interface's traits, partitioner and
// arguments.
#pragma once

#include "types.hpp"

namespace ckh {

using Element = kernel::Element;
// The first of two stages stores accumulators, which the second rounds to elements.
using Stored = std::conditional_t<kernel::two_stage, Accumulator, Element>;
using PassThrough = ck_tile::element_wise::PassThrough;
using Fixed = typename Traits::FixedGemmParams;

// What a direction makes of the GEMM A x B = C, and in which order its kernel takes X, W and Y or their gradients.
template <Variant>
struct DirectionOf;

template <>
struct DirectionOf<Variant::forward> {
    using ALayout = typename Traits::AsLayoutFwd;
    using BLayout = typename Traits::BsLayoutFwd;
    using CLayout = typename Traits::CLayoutFwd;
    template <class Pipeline, class Epilogue>
    using Kernel = ck_tile::GroupedConvolutionForwardKernel<Traits, Partitioner, Pipeline, Epilogue>;

    static auto arguments(const ck_tile::conv::ConvParam& param, const Operands& operands) {
        return ForwardArguments(param, operands.a, operands.b, {}, operands.out, kernel::split_k);
    }
};

// Not in every interface.
#if __has_include("ck_tile/ops/grouped_convolution/kernel/grouped_convolution_backward_data_kernel.hpp")
template <>
struct DirectionOf<Variant::bwd_data> {
    using ALayout = typename Traits::AsLayoutBwdData;
    using BLayout = typename Traits::BsLayoutBwdData;
    using CLayout = typename Traits::CLayoutBwdData;
    template <class Pipeline, class Epilogue>
    using Kernel = ck_tile::GroupedConvolutionBackwardDataKernel<Traits, Partitioner, Pipeline, Epilogue>;

    static auto arguments(const ck_tile::conv::ConvParam& param, const Operands& operands) {
        return ck_tile::GroupedConvBwdDataHostArgs(param, operands.out, operands.b, {}, operands.a, kernel::split_k);
    }
};
#endif

template <>
struct DirectionOf<Variant::bwd_weight> {
    using ALayout = typename Traits::AsLayoutBwdWeight;
    using BLayout = typename Traits::BsLayoutBwdWeight;
    using CLayout = typename Traits::CLayoutBwdWeight;
    template <class Pipeline, class Epilogue>
    using Kernel = ck_tile::GroupedConvolutionBackwardWeightKernel<Traits, Partitioner, Pipeline, Epilogue>;

    static auto arguments(const ck_tile::conv::ConvParam& param, const Operands& operands) {
        void* stored = kernel::two_stage ? operands.workspace : operands.out;
        return ck_tile::GroupedConvBwdWeightHostArgs(param, operands.b, stored, {}, operands.a, kernel::split_k);
    }
};

using Direction = DirectionOf<kernel::variant>;

// What follows NumWaveGroups differs between trees; all of it has defaults.
using UniversalTraits =
    ck_tile::TileGemmUniversalTraits<Fixed::kPadM, Fixed::kPadN, Fixed::kPadK, kernel::double_smem_buffer,
                                     typename Direction::ALayout, typename Direction::BLayout,
                                     typename Direction::CLayout, Fixed::TransposeC, Fixed::UseStructuredSparsity,
                                     Fixed::Persistent, kernel::num_wave_groups>;

}  // namespace ckh
