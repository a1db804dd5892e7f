// Stub of a pipeline.
#pragma once

#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp"

namespace ck_tile {

struct GemmPipelineAgBgCrCompV4DefaultPolicy {};

template <typename Problem, typename Policy = GemmPipelineAgBgCrCompV4DefaultPolicy>
struct GemmPipelineAgBgCrCompV4 : StubPipeline<Problem, Policy> {
    static constexpr bool Async = false;
    static constexpr bool LargeTensors = Problem::Traits::LargeTensors;
    static constexpr bool DoubleSmemBuffer = Problem::Traits::DoubleSmemBuffer;
    static_assert(DoubleSmemBuffer == true, "pipeline requires double smem buffer");
    template <GemmPipelineScheduler>
    struct PipelineImpl;
    template <>
    struct PipelineImpl<GemmPipelineScheduler::Intrawave> {};
    static_assert(sizeof(PipelineImpl<Problem::Scheduler>) > 0);
};

}  // namespace ck_tile
