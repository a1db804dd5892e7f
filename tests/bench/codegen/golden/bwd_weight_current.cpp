#include "vocabulary.hpp"

namespace ckh::kernel {

inline constexpr char label[512] = "ckh-kernel:grouped_conv_bwd_weight_bf16_ndhwgc_3d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x32_gm8_2stage";
using Element = ck_tile::bf16_t;
inline constexpr int ndim_spatial = 3;
inline constexpr Variant variant = Variant::bwd_weight;
inline constexpr Pipeline pipeline = Pipeline::compv3;
inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::Default;
inline constexpr ck_tile::index_t tile_m = 16;
inline constexpr ck_tile::index_t tile_n = 64;
inline constexpr ck_tile::index_t tile_k = 64;
inline constexpr ck_tile::index_t wave_m = 1;
inline constexpr ck_tile::index_t wave_n = 4;
inline constexpr ck_tile::index_t wave_k = 1;
inline constexpr ck_tile::index_t warp_tile_m = 16;
inline constexpr ck_tile::index_t warp_tile_n = 16;
inline constexpr ck_tile::index_t warp_tile_k = 32;
inline constexpr ck_tile::index_t vector_a = 4;
inline constexpr ck_tile::index_t vector_b = 8;
inline constexpr ck_tile::index_t vector_c = 8;
inline constexpr ck_tile::index_t num_groups_to_merge = 8;
inline constexpr ck_tile::index_t num_wave_groups = 1;
inline constexpr ck_tile::index_t split_k = 1;
inline constexpr ck_tile::index_t block_per_cu = 1;
inline constexpr bool double_smem_buffer = false;
inline constexpr bool split_image = false;
inline constexpr bool two_stage = true;
inline constexpr bool explicit_gemm = false;

}  // namespace ckh::kernel

#include "current.hpp"
#include "abi.hpp"
