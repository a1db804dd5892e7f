// Stub of a pipeline.
#pragma once

#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp"

namespace ck_tile {

template <typename Problem, typename Policy = UniversalGemmPipelineAgBgCrPolicy>
struct GemmPipelineAgBgCrMem : StubPipeline<Problem, Policy> {
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
    template <GemmPipelineScheduler>
    struct PipelineImpl;
    template <>
    struct PipelineImpl<GemmPipelineScheduler::Intrawave> {};
    template <>
    struct PipelineImpl<GemmPipelineScheduler::Interwave> {};
    static_assert(sizeof(PipelineImpl<Problem::Scheduler>) > 0);
};

}  // namespace ck_tile
