// Stub of a pipeline.
#pragma once

#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp"

namespace ck_tile {

template <typename Problem, typename Policy = UniversalGemmPipelineAgBgCrPolicy>
struct GemmPipelineAgBgCrMem : StubPipeline<Problem, Policy> {
    static constexpr bool Async = false;
    static constexpr bool LargeTensors = Problem::Traits::LargeTensors;
    template <GemmPipelineScheduler>
    struct PipelineImpl;
    template <>
    struct PipelineImpl<GemmPipelineScheduler::Intrawave> {};
    template <>
    struct PipelineImpl<GemmPipelineScheduler::Interwave> {};
    static_assert(sizeof(PipelineImpl<Problem::Scheduler>) > 0);
};

}  // namespace ck_tile
