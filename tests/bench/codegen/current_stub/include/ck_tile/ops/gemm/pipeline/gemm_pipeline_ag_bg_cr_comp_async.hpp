// Stub of a pipeline.
#pragma once

#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp"

namespace ck_tile {

template <bool = false>
struct GemmPipelineAgBgCrCompAsyncDefaultPolicy {};

template <typename Problem, typename Policy = GemmPipelineAgBgCrCompAsyncDefaultPolicy<>>
struct GemmPipelineAgBgCrCompAsync : StubPipeline<Problem, Policy> {
    static constexpr bool Async = true;
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
