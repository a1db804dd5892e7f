#include "gemm_vocabulary.hpp"

namespace ckh::kernel {

inline constexpr char label[512] = "ckh-kernel:gemm_universal_fp8_rcr_compv5_cshuffle_intrawave_False_False_False_False_64x64x64_1x1x2_32x32x16_vec16_8_4";
using Element = ck_tile::fp8_t;
using Accumulator = float;
using Output = ck_tile::half_t;
using ALayout = RowMajor;
using BLayout = ColumnMajor;
inline constexpr ck_tile::index_t tile_m = 64;
inline constexpr ck_tile::index_t tile_n = 64;
inline constexpr ck_tile::index_t tile_k = 64;
inline constexpr ck_tile::index_t wave_m = 1;
inline constexpr ck_tile::index_t wave_n = 1;
inline constexpr ck_tile::index_t wave_k = 2;
inline constexpr ck_tile::index_t warp_tile_m = 32;
inline constexpr ck_tile::index_t warp_tile_n = 32;
inline constexpr ck_tile::index_t warp_tile_k = 16;
inline constexpr ck_tile::index_t vector_a = 16;
inline constexpr ck_tile::index_t vector_b = 8;
inline constexpr ck_tile::index_t vector_c = 4;
inline constexpr bool pad_m = false;
inline constexpr bool pad_n = false;
inline constexpr bool pad_k = false;
inline constexpr bool persistent = false;
inline constexpr bool double_smem_buffer = false;
inline constexpr Pipeline pipeline = Pipeline::compv5;
inline constexpr Epilogue epilogue = Epilogue::cshuffle;
inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;

}  // namespace ckh::kernel

#include "gemm_mid2025.hpp"
#include "gemm_exports.hpp"
