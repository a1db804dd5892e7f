#include "vocabulary.hpp"

namespace ckh::kernel {

inline constexpr char label[512] = "ckh-kernel:grouped_conv_fwd_fp16_nhwgc_2d_basic_v1_cshuffle_interwave_64x64x32_1x1x1_32x32x16_vec8_8_8_bpc2_large_tensor";
using Element = ck_tile::half_t;
inline constexpr int ndim_spatial = 2;
inline constexpr Variant variant = Variant::forward;
inline constexpr Pipeline pipeline = Pipeline::basic_v1;
inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Interwave;
inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::Default;
inline constexpr ck_tile::index_t tile_m = 64;
inline constexpr ck_tile::index_t tile_n = 64;
inline constexpr ck_tile::index_t tile_k = 32;
inline constexpr ck_tile::index_t wave_m = 1;
inline constexpr ck_tile::index_t wave_n = 1;
inline constexpr ck_tile::index_t wave_k = 1;
inline constexpr ck_tile::index_t warp_tile_m = 32;
inline constexpr ck_tile::index_t warp_tile_n = 32;
inline constexpr ck_tile::index_t warp_tile_k = 16;
inline constexpr ck_tile::index_t vector_a = 8;
inline constexpr ck_tile::index_t vector_b = 8;
inline constexpr ck_tile::index_t vector_c = 8;
inline constexpr ck_tile::index_t num_groups_to_merge = 1;
inline constexpr ck_tile::index_t num_wave_groups = 1;
inline constexpr ck_tile::index_t split_k = 1;
inline constexpr ck_tile::index_t block_per_cu = 2;
inline constexpr bool double_smem_buffer = false;
inline constexpr bool split_image = true;
inline constexpr bool two_stage = false;
inline constexpr bool explicit_gemm = false;

}  // namespace ckh::kernel

#include "late2025.hpp"
#include "abi.hpp"
