#include "vocabulary.hpp"

namespace ckh::kernel {

inline constexpr char label[512] = "ckh-kernel:grouped_conv_bwd_data_fp16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec8_2_4";
using Element = ck_tile::half_t;
inline constexpr int ndim_spatial = 2;
inline constexpr Variant variant = Variant::bwd_data;
inline constexpr Pipeline pipeline = Pipeline::compv3;
inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::Default;
inline constexpr ck_tile::index_t tile_m = 64;
inline constexpr ck_tile::index_t tile_n = 64;
inline constexpr ck_tile::index_t tile_k = 32;
inline constexpr ck_tile::index_t wave_m = 2;
inline constexpr ck_tile::index_t wave_n = 2;
inline constexpr ck_tile::index_t wave_k = 1;
inline constexpr ck_tile::index_t warp_tile_m = 32;
inline constexpr ck_tile::index_t warp_tile_n = 32;
inline constexpr ck_tile::index_t warp_tile_k = 8;
inline constexpr ck_tile::index_t vector_a = 8;
inline constexpr ck_tile::index_t vector_b = 2;
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

#include "late2025.hpp"
#include "abi.hpp"
