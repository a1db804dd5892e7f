// Stub of a pipeline.
#pragma once

#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_async.hpp"
#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp"

namespace ck_tile {

template <typename Problem, typename Policy = GemmPipelineAgBgCrCompAsyncDefaultPolicy<>>
struct GemmPipelineAGmemBGmemCRegAsyncV1 : StubPipeline<Problem, Policy> {
    static constexpr bool Async = true;
    static constexpr bool LargeTensors = Problem::Traits::LargeTensors;
    template <GemmPipelineScheduler>
    struct PipelineImpl;
    template <>
    struct PipelineImpl<GemmPipelineScheduler::Intrawave> {};
    static_assert(sizeof(PipelineImpl<Problem::Scheduler>) > 0);
};

}  // namespace ck_tile
