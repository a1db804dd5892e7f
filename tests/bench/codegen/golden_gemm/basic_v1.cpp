#include "gemm_vocabulary.hpp"

namespace ckh::kernel {

inline constexpr char label[512] = "ckh-kernel:gemm_universal_fp16_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8";
using Element = ck_tile::half_t;
using Accumulator = float;
using Output = ck_tile::half_t;
using ALayout = RowMajor;
using BLayout = ColumnMajor;
inline constexpr ck_tile::index_t tile_m = 64;
inline constexpr ck_tile::index_t tile_n = 64;
inline constexpr ck_tile::index_t tile_k = 32;
inline constexpr ck_tile::index_t wave_m = 2;
inline constexpr ck_tile::index_t wave_n = 2;
inline constexpr ck_tile::index_t wave_k = 1;
inline constexpr ck_tile::index_t warp_tile_m = 32;
inline constexpr ck_tile::index_t warp_tile_n = 32;
inline constexpr ck_tile::index_t warp_tile_k = 8;
inline constexpr ck_tile::index_t vector_a = 0;
inline constexpr ck_tile::index_t vector_b = 0;
inline constexpr ck_tile::index_t vector_c = 0;
inline constexpr bool pad_m = true;
inline constexpr bool pad_n = true;
inline constexpr bool pad_k = true;
inline constexpr bool persistent = false;
inline constexpr bool double_smem_buffer = false;
inline constexpr Pipeline pipeline = Pipeline::basic_v1;
inline constexpr Epilogue epilogue = Epilogue::cshuffle;
inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;

}  // namespace ckh::kernel

#include "gemm_mid2025.hpp"
#include "gemm_exports.hpp"
