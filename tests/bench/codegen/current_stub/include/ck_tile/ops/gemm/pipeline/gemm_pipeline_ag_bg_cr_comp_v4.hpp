// Stub of a pipeline.
#pragma once

#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp"

namespace ck_tile {

struct GemmPipelineAgBgCrCompV4DefaultPolicy : UniversalGemmPipelineAgBgCrPolicy {};

template <typename Problem, typename Policy = GemmPipelineAgBgCrCompV4DefaultPolicy>
struct GemmPipelineAgBgCrCompV4 : StubPipeline<Problem, Policy> {
    template <bool IsWave32Host = false>
    static constexpr index_t GetVectorSizeA() {
        return Policy::template GetVectorSizeA<Problem, IsWave32Host>();
    }
    template <bool IsWave32Host = false>
    static constexpr index_t GetVectorSizeB() {
        return Policy::template GetVectorSizeB<Problem, IsWave32Host>();
    }
    static constexpr bool Preshuffle = Problem::Traits::Preshuffle;
    static constexpr bool UsePersistentKernel = Problem::Traits::UsePersistentKernel;
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
