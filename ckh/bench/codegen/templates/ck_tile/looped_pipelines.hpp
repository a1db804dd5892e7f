// The pipelines of the interfaces whose pipelines get to know at compile time whether their main loop runs and how it ends,
// for convolutions and GEMMs alike. To be included after a vocabulary, whose Pipeline this is about, and after LoadPolicy:
// what an interface makes of a pipeline's policy so that operands can be loaded with any vector width.
#pragma once

namespace ckh {

// A pipeline whose loads have the widths that its problem states, for the kernel, which reads them from the pipeline. The
// policy keeps its own, from which the pipeline derives its schedule of instructions, as in CK Tile's own kernels.
template <class Pipe, class Problem>
struct StatedWidths : Pipe {
    template <bool IsWave32Host = false>
    CK_TILE_HOST_DEVICE static constexpr ck_tile::index_t GetVectorSizeA() {
        return Problem::VectorSizeA;
    }
    template <bool IsWave32Host = false>
    CK_TILE_HOST_DEVICE static constexpr ck_tile::index_t GetVectorSizeB() {
        return Problem::VectorSizeB;
    }
};

// A pipeline with a main loop: the class that knows loops, and the pipeline for a loop and its tail.
template <class LoopBase, template <class, class> class Pipe, class Policy,
          template <bool, ck_tile::TailNumber> class LoopProblem>
struct LoopingPipeline {
    using Base = LoopBase;
    template <class Problem>
    using OfProblem = std::conditional_t<Problem::FixedVectorSize, StatedWidths<Pipe<Problem, LoadPolicy<Policy>>, Problem>,
                                         Pipe<Problem, Policy>>;
    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using Full = OfProblem<LoopProblem<HasHotLoop, Tail>>;
};

template <Pipeline, class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable;

template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::basic_v1, BasicProblem, LoopProblem> {
    template <bool, ck_tile::TailNumber>
    using Full = ck_tile::GemmPipelineAGmemBGmemCRegV1<BasicProblem, LoadPolicy<ck_tile::UniversalGemmPipelineAgBgCrPolicy>>;
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
// Not every tree has these.
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp")
template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::compv6, BasicProblem, LoopProblem>
    : LoopingPipeline<ck_tile::BaseGemmPipelineAgBgCrCompV6<BasicProblem>, ck_tile::GemmPipelineAgBgCrCompV6,
                      ck_tile::GemmPipelineAgBgCrCompV6DefaultPolicy, LoopProblem> {};
#endif
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_async.hpp")
template <class BasicProblem, template <bool, ck_tile::TailNumber> class LoopProblem>
struct PipelineTable<Pipeline::comp_async, BasicProblem, LoopProblem>
    : LoopingPipeline<ck_tile::BaseGemmPipelineAgBgCrCompAsync<BasicProblem>, ck_tile::GemmPipelineAgBgCrCompAsync,
                      ck_tile::GemmPipelineAgBgCrCompAsyncDefaultPolicy, LoopProblem> {};
#endif

}  // namespace ckh
