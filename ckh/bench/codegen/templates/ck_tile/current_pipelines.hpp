// The pipelines of CK Tile's current interface, for convolutions and GEMMs alike. To be included after a vocabulary, whose
// Pipeline this is about.
#pragma once

namespace ckh {

// UniversalPolicy is the one that replaces the default policy of pipelines that share the universal one; or none.
template <Pipeline, class Problem, class... UniversalPolicy>
struct PipelineOf;

template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::basic_v1, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAGmemBGmemCRegV1<Problem, UniversalPolicy...>;
};
template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::mem, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAgBgCrMem<Problem, UniversalPolicy...>;
};
template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::compv3, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV3<Problem, UniversalPolicy...>;
};
template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::compv4, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV4<Problem>;
};
// Not every tree has these; one that lacks them must still build the others.
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v5.hpp")
template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::compv5, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV5<Problem>;
};
#endif
#if __has_include("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp")
template <class Problem, class... UniversalPolicy>
struct PipelineOf<Pipeline::compv6, Problem, UniversalPolicy...> {
    using Class = ck_tile::GemmPipelineAgBgCrCompV6<Problem>;
};
#endif

}  // namespace ckh
