// What the pipeline preshufflev2 of CK Tile's interface of late 2025 takes of a GEMM kernel. To be included after the types
// of its epilogue: Ds, DLayouts and Elementwise.
#pragma once

#include "shuffled_b.hpp"

namespace ckh {

template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem = ck_tile::UniversalGemmPipelineProblem<Element, Element, Accumulator, Shape, Traits,
                                                          ck_tile::GemmPipelineScheduler::Default, HasHotLoop, Tail>;

template <Pipeline>
struct PipelineClasses {
    using Base = ck_tile::BaseWeightPreshufflePipelineAGmemBGmemCRegV2<LoopProblem<true, ck_tile::TailNumber::Full>>;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = ck_tile::WeightPreshufflePipelineAGmemBGmemCRegV2<LoopProblem<HasHotLoop, Tail>>;
};

}  // namespace ckh
