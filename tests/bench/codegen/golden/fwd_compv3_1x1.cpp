#include "vocabulary.hpp"

namespace ckh::kernel {

inline constexpr char label[512] = "ckh-kernel:grouped_conv_fwd_fp32_nhwgc_2d_compv3_cshuffle_intrawave_64x64x16_2x2x1_32x32x8_vec4_4_4_filter1x1_pad0";
using Element = float;
inline constexpr int ndim_spatial = 2;
inline constexpr Variant variant = Variant::forward;
inline constexpr Pipeline pipeline = Pipeline::compv3;
inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::Filter1x1Pad0;
inline constexpr ck_tile::index_t tile_m = 64;
inline constexpr ck_tile::index_t tile_n = 64;
inline constexpr ck_tile::index_t tile_k = 16;
inline constexpr ck_tile::index_t wave_m = 2;
inline constexpr ck_tile::index_t wave_n = 2;
inline constexpr ck_tile::index_t wave_k = 1;
inline constexpr ck_tile::index_t warp_tile_m = 32;
inline constexpr ck_tile::index_t warp_tile_n = 32;
inline constexpr ck_tile::index_t warp_tile_k = 8;
inline constexpr ck_tile::index_t vector_a = 4;
inline constexpr ck_tile::index_t vector_b = 4;
inline constexpr ck_tile::index_t vector_c = 4;
inline constexpr ck_tile::index_t num_groups_to_merge = 1;
inline constexpr ck_tile::index_t num_wave_groups = 1;
inline constexpr ck_tile::index_t split_k = 1;
inline constexpr ck_tile::index_t block_per_cu = 1;
inline constexpr bool double_smem_buffer = false;
inline constexpr bool split_image = false;
inline constexpr bool two_stage = false;
inline constexpr bool explicit_gemm = false;

}  // namespace ckh::kernel

#include "mid2025.hpp"
#include "abi.hpp"
