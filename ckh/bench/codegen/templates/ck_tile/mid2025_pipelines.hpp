// The pipelines of CK Tile's interface of mid-2025, for convolutions and GEMMs alike. To be included after a vocabulary,
// whose Pipeline this is about.
#pragma once

namespace ckh {

// The policy's own choice of vector widths is replaced by the kernel's.
template <class Policy>
struct FixedVectors : Policy {
    template <class P>
    CK_TILE_HOST_DEVICE static constexpr auto GetVectorSizeA() {
        return P::VectorSizeA;
    }
    template <class P>
    CK_TILE_HOST_DEVICE static constexpr auto GetVectorSizeB() {
        return P::VectorSizeB;
    }
};

// A pipeline that is told of its main loop: the class that knows loops, and the pipeline for a loop and its tail.
template <class LoopBase, template <class, class> class Pipe, class Policy,
          template <bool, ck_tile::TailNumber> class LoopProblem>
struct LoopingPipeline {
    using Base = LoopBase;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = Pipe<LoopProblem<HasHotLoop, Tail>, FixedVectors<Policy>>;
};

template <Pipeline, class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable;

template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::basic_v1, BasicProblem, LoopProblem> {
    template <bool, ck_tile::TailNumber>
    using Full = ck_tile::GemmPipelineAGmemBGmemCRegV1<BasicProblem>;
};
template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::mem, BasicProblem, LoopProblem>
    : LoopingPipeline<ck_tile::BaseGemmPipelineAgBgCrMem<BasicProblem>, ck_tile::GemmPipelineAgBgCrMem,
                      ck_tile::UniversalGemmPipelineAgBgCrPolicy, LoopProblem> {};
template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::compv3, BasicProblem, LoopProblem>
    : LoopingPipeline<ck_tile::BaseGemmPipelineAgBgCrCompV3<BasicProblem>, ck_tile::GemmPipelineAgBgCrCompV3,
                      ck_tile::UniversalGemmPipelineAgBgCrPolicy, LoopProblem> {};
template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::compv4, BasicProblem, LoopProblem>
    : LoopingPipeline<ck_tile::BaseGemmPipelineAgBgCrCompV4<BasicProblem>, ck_tile::GemmPipelineAgBgCrCompV4,
                      ck_tile::GemmPipelineAgBgCrCompV4DefaultPolicy, LoopProblem> {};
template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::compv5, BasicProblem, LoopProblem>
    : LoopingPipeline<ck_tile::BaseGemmPipelineAgBgCrCompV5<BasicProblem>, ck_tile::GemmPipelineAgBgCrCompV5,
                      ck_tile::GemmPipelineAgBgCrCompV5DefaultPolicy, LoopProblem> {};

}  // namespace ckh
