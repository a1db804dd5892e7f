"""Convolution kernels compiled for real, for each interface of CK Tile's headers: each pipeline, direction and so on.

The tests compile them if there is a HIP compiler; they can also be used to check another version of the headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import Interface
from ckh.ops.grouped_conv.kernel import parse_kernel_name

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

# Architecture -> names without their common prefix. Each takes about 20 s to compile.
_OF_MID_2025: dict[str, tuple[str, ...]] = {
    "gfx942": (
        "fwd_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_16x16x64_1x1x1_16x16x32_vec8_8_4_bpc2",
        "fwd_fp16_nhwgc_2d_mem_cshuffle_interwave_16x16x64_1x1x1_16x16x32_vec8_8_4_bpc2_filter1x1_pad0",
        "fwd_fp16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8",
        "fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_128x128x64_2x2x1_32x32x16_vec8_8_8",
        "fwd_fp16_nhwgc_2d_compv4_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8_dsb",
        "fwd_fp16_nhwgc_2d_compv5_cshuffle_intrawave_64x64x64_1x1x2_32x32x16_vec8_8_8_wg2",
        "fwd_fp32_nhwgc_2d_mem_cshuffle_intrawave_64x64x16_2x2x1_32x32x8_vec4_4_4",
        "fwd_fp32_ndhwgc_3d_compv3_cshuffle_intrawave_64x64x16_2x2x1_16x16x8_vec4_4_4",
        "fwd_fp16_ndhwgc_3d_basic_v1_cshuffle_intrawave_16x16x64_1x1x1_16x16x32_vec8_8_4_bpc2",
        "bwd_weight_fp16_nhwgc_2d_mem_cshuffle_intrawave_16x16x32_1x1x1_16x16x32_vec1_1_1_bpc2",
        "bwd_weight_fp16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8_splitk4",
        "bwd_weight_bf16_ndhwgc_3d_compv3_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8",
    ),
    "gfx90a": (
        "fwd_bf16_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec8_8_8",
        "fwd_bf16_ndhwgc_3d_mem_cshuffle_interwave_64x64x32_2x2x1_32x32x8_vec8_8_8",
        "fwd_fp16_nhwgc_2d_compv4_cshuffle_intrawave_64x64x32_2x2x1_16x16x16_vec8_8_8_dsb",
        "fwd_fp16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_32x32x8_vec8_8_8_filter1x1_stride1_pad0",
        "fwd_fp32_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x16_2x2x1_16x16x4_vec4_4_4",
        "bwd_weight_fp32_nhwgc_2d_mem_cshuffle_intrawave_64x64x16_2x2x1_32x32x8_vec4_4_4_splitk2",
        "bwd_weight_fp16_ndhwgc_3d_compv4_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec8_8_8_dsb",
        "bwd_weight_bf16_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec8_8_8",
    ),
}

_OF_LATE_2025: dict[str, tuple[str, ...]] = {
    "gfx942": (
        "fwd_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x32_1x1x1_32x32x16_vec8_8_8_bpc2_large_tensor",
        "fwd_fp16_nhwgc_2d_basic_v1_cshuffle_interwave_64x64x32_2x2x1_32x32x8_vec4_4_4",
        "fwd_fp16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8",
        "fwd_fp16_nhwgc_2d_compv4_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8_dsb",
        "fwd_fp32_ndhwgc_3d_compv3_cshuffle_intrawave_64x64x16_2x2x1_16x16x8_vec4_4_4",
        "bwd_data_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec4_2_4",
        "bwd_data_bf16_ndhwgc_3d_compv3_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_4_8_filter1x1_stride1_pad0",
        "bwd_weight_fp16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x32_vec4_8_8_splitk4",
        "bwd_weight_fp16_nhwgc_2d_compv4_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec2_4_8_dsb",
        "bwd_weight_bf16_ndhwgc_3d_mem_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec1_2_1_gm2_2stage",
    ),
    "gfx950": (
        "fwd_fp16_nhwgc_2d_mem_cshuffle_interwave_16x16x64_1x1x1_16x16x32_vec8_8_4_bpc2",
        "bwd_data_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec4_2_4",
        "bwd_weight_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8",
    ),
    "gfx90a": (
        "fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec8_8_8",
        "bwd_weight_fp32_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x16_2x2x1_32x32x4_vec2_1_4",
    ),
    "gfx1100": (
        "fwd_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_32x64x32_2x4x1_16x16x16_vec4_8_4",
        "fwd_bf16_ndhwgc_3d_mem_cshuffle_intrawave_128x128x32_4x2x1_16x16x16_vec4_8_8",
    ),
    "gfx1201": (
        "fwd_fp16_nhwgc_2d_compv3_cshuffle_intrawave_128x128x32_4x2x1_16x16x16_vec4_8_8",
        "fwd_bf16_ndhwgc_3d_basic_v1_cshuffle_intrawave_32x64x32_2x4x1_16x16x16_vec4_8_4",
    ),
}


def _parsed(names: dict[str, tuple[str, ...]]) -> dict[str, tuple[ConvKernel, ...]]:
    return {arch: tuple(parse_kernel_name(f"grouped_conv_{name}") for name in some) for arch, some in names.items()}


# Features of late 2025 that the current interface has too.
REAL_KERNELS: dict[Interface, dict[str, tuple[ConvKernel, ...]]] = {
    Interface.MID_2025: _parsed(_OF_MID_2025),
    Interface.LATE_2025: _parsed(_OF_LATE_2025),
    Interface.CURRENT: _parsed(_OF_LATE_2025),
}
