// Stub of a pipeline that, as published, lacks what CK Tile's convolutions ask pipelines for.
#pragma once

#include "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp"

namespace ck_tile {

struct GemmPipelineAgBgCrCompV5DefaultPolicy : UniversalGemmPipelineAgBgCrPolicy {};

template <typename Problem, typename Policy = GemmPipelineAgBgCrCompV5DefaultPolicy>
struct GemmPipelineAgBgCrCompV5 : StubPipeline<Problem, Policy> {
    template <bool IsWave32Host = false>
    static constexpr index_t GetVectorSizeA() {
        return Policy::template GetVectorSizeA<Problem, IsWave32Host>();
    }
    template <bool IsWave32Host = false>
    static constexpr index_t GetVectorSizeB() {
        return Policy::template GetVectorSizeB<Problem, IsWave32Host>();
    }
    static constexpr bool Preshuffle = Problem::Traits::Preshuffle;
    template <GemmPipelineScheduler>
    struct PipelineImpl;
    template <>
    struct PipelineImpl<GemmPipelineScheduler::Intrawave> {};
    static_assert(sizeof(PipelineImpl<Problem::Scheduler>) > 0);
};

}  // namespace ck_tile
