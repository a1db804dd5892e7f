// What CK Tile's flatmm of late 2025 takes of a kernel with a shuffled B, and how it is started. To be included after the
// types of its epilogue: Ds, DLayouts and Elementwise.
#pragma once

#include "shuffled_b.hpp"

namespace ckh {

template <bool HasHotLoop, ck_tile::TailNumber Tail>
using LoopProblem = ck_tile::FlatmmPipelineProblem<Element, Element, Accumulator, Shape, Traits,
                                                   ck_tile::GemmPipelineScheduler::Default, HasHotLoop, Tail>;

template <Pipeline>
struct PipelineClasses {
    using Base = ck_tile::BaseFlatmmPipelineAGmemBGmemCRegV1<LoopProblem<true, ck_tile::TailNumber::Full>>;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = ck_tile::FlatmmPipelineAGmemBGmemCRegV1<LoopProblem<HasHotLoop, Tail>>;
};

}  // namespace ckh
