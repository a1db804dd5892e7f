// What a kernel is in CK Tile's current interface: its traits, pipeline, epilogue and kernel class.
#pragma once

#include "types.hpp"

namespace ckh {

using Element = kernel::Element;
// The first of two stages stores accumulators, which the second rounds to elements.
using Stored = std::conditional_t<kernel::two_stage, Accumulator, Element>;
using PassThrough = ck_tile::element_wise::PassThrough;

using Traits = ck_tile::GroupedConvTraits<kernel::ndim_spatial, kernel::specialization, InLayout, WeiLayout, NoTensors,
                                          OutLayout, kernel::vector_a, kernel::vector_b, kernel::vector_c,
                                          kernel::num_groups_to_merge, kernel::split_image, kernel::explicit_gemm>;
using Fixed = typename Traits::FixedGemmParams;
using Partitioner =
    ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, Fixed::TilePartitionerGroupNum, Fixed::TilePartitionerM01>;

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
        return ck_tile::GroupedConvFwdHostArgs<PassThrough>(param, operands.a, operands.b, {}, operands.out,
                                                            kernel::split_k);
    }
};

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

// CK Tile's own sources give these three pipelines the policy of the convolutions, and the others their default.
using ConvPolicy = ck_tile::GroupedConvUniversalPipelineAgBgCrPolicy;

template <Pipeline, class GemmProblem>
struct PipelineOf;

template <class GemmProblem>
struct PipelineOf<Pipeline::basic_v1, GemmProblem> {
    using Class = ck_tile::GemmPipelineAGmemBGmemCRegV1<GemmProblem, ConvPolicy>;
};
template <class GemmProblem>
struct PipelineOf<Pipeline::mem, GemmProblem> {
    using Class = ck_tile::GemmPipelineAgBgCrMem<GemmProblem, ConvPolicy>;
};
template <class GemmProblem>
struct PipelineOf<Pipeline::compv3, GemmProblem> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV3<GemmProblem, ConvPolicy>;
};
template <class GemmProblem>
struct PipelineOf<Pipeline::compv4, GemmProblem> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV4<GemmProblem>;
};
// Not every tree has these; one that lacks them must still build the others.
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v5.hpp")
template <class GemmProblem>
struct PipelineOf<Pipeline::compv5, GemmProblem> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV5<GemmProblem>;
};
#endif
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp")
template <class GemmProblem>
struct PipelineOf<Pipeline::compv6, GemmProblem> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV6<GemmProblem>;
};
#endif
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_async.hpp")
template <class GemmProblem>
struct PipelineOf<Pipeline::comp_async, GemmProblem> {
    using Class = ck_tile::GemmPipelineAgBgCrCompAsync<GemmProblem>;
};
#endif
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_agmem_bgmem_creg_async_v1.hpp")
template <class GemmProblem>
struct PipelineOf<Pipeline::basic_async_v1, GemmProblem> {
    using Class = ck_tile::GemmPipelineAGmemBGmemCRegAsyncV1<GemmProblem>;
};
#endif

// What follows NumWaveGroups differs between trees of this interface (LargeTensors moved); all of it has defaults.
using UniversalTraits =
    ck_tile::TileGemmUniversalTraits<Fixed::kPadM, Fixed::kPadN, Fixed::kPadK, kernel::double_smem_buffer,
                                     typename Direction::ALayout, typename Direction::BLayout,
                                     typename Direction::CLayout, Fixed::TransposeC, Fixed::UseStructuredSparsity,
                                     Fixed::Persistent, kernel::num_wave_groups>;
using GemmProblem =
    ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, UniversalTraits, kernel::scheduler,
                                          PassThrough, PassThrough, Element, Element, Fixed::FixedVectorSize,
                                          kernel::vector_a, kernel::vector_b>;
using Gemm = typename PipelineOf<kernel::pipeline, GemmProblem>::Class;

// The epilogue writes one matrix instruction's columns at a time (the 1), as CK Tile's own convolutions do.
using Epilogue = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    Element, Element, NoTensors, Accumulator, Stored, typename Traits::ImplicitGemmDsLayout, typename Fixed::ELayout,
    PassThrough, Partitioner::MPerBlock, Partitioner::NPerBlock, kernel::wave_m, kernel::wave_n, kernel::warp_tile_m,
    kernel::warp_tile_n, kernel::warp_tile_k, Fixed::TransposeC, kernel::num_wave_groups, Fixed::FixedVectorSize,
    kernel::vector_c, 1, kernel::double_smem_buffer>>;

using Kernel = typename Direction::template Kernel<Gemm, Epilogue>;

}  // namespace ckh
