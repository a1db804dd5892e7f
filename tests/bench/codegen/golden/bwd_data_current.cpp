#include "vocabulary.hpp"

namespace ckh::kernel {

inline constexpr char label[512] = "ckh-kernel:grouped_conv_bwd_data_bf16_nhwgc_2d_compv6_cshuffle_intrawave_128x128x64_2x2x1_32x32x16_bpc2";
using Element = ck_tile::bf16_t;
inline constexpr int ndim_spatial = 2;
inline constexpr Variant variant = Variant::bwd_data;
inline constexpr Pipeline pipeline = Pipeline::compv6;
inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::Default;
inline constexpr ck_tile::index_t tile_m = 128;
inline constexpr ck_tile::index_t tile_n = 128;
inline constexpr ck_tile::index_t tile_k = 64;
inline constexpr ck_tile::index_t wave_m = 2;
inline constexpr ck_tile::index_t wave_n = 2;
inline constexpr ck_tile::index_t wave_k = 1;
inline constexpr ck_tile::index_t warp_tile_m = 32;
inline constexpr ck_tile::index_t warp_tile_n = 32;
inline constexpr ck_tile::index_t warp_tile_k = 16;
inline constexpr ck_tile::index_t vector_a = 4;
inline constexpr ck_tile::index_t vector_b = 8;
inline constexpr ck_tile::index_t vector_c = 8;
inline constexpr ck_tile::index_t num_groups_to_merge = 1;
inline constexpr ck_tile::index_t num_wave_groups = 1;
inline constexpr ck_tile::index_t split_k = 1;
inline constexpr ck_tile::index_t block_per_cu = 2;
inline constexpr bool double_smem_buffer = false;
inline constexpr bool split_image = false;
inline constexpr bool two_stage = false;
inline constexpr bool explicit_gemm = false;

}  // namespace ckh::kernel

#include "current.hpp"
#include "abi.hpp"
