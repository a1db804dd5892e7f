// The traits of a GEMM kernel of the interfaces of 2025, and the vector widths of its loads.
#pragma once

#include "gemm_types.hpp"

namespace ckh {

// The waves of compv5 are two groups, one of which loads while the other computes.
constexpr ck_tile::index_t num_wave_groups = kernel::pipeline == Pipeline::compv5 ? 2 : 1;

using Traits = ck_tile::TileGemmUniversalTraits<kernel::pad_m, kernel::pad_n, kernel::pad_k, kernel::double_smem_buffer,
                                                ALayout, BLayout, RowMajor, false, false, kernel::persistent,
                                                num_wave_groups>;

// A pipeline takes the widths of both operands or of none; beside one that the kernel has, the other is what the
// universal policy makes of the tile. basic_v1 would load padded operands one element at a time, so both are stated there.
using WidthPolicy = ck_tile::UniversalGemmPipelineAgBgCrPolicy;
using WidthProblem = ck_tile::GemmPipelineProblem<Element, Element, Accumulator, Shape, Traits>;
constexpr bool has_widths = kernel::vector_a != 0 || kernel::vector_b != 0;
constexpr ck_tile::index_t width_a = kernel::vector_a ? kernel::vector_a : WidthPolicy::GetVectorSizeA<WidthProblem>();
constexpr ck_tile::index_t width_b = kernel::vector_b ? kernel::vector_b : WidthPolicy::GetVectorSizeB<WidthProblem>();

}  // namespace ckh
