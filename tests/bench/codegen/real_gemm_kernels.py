"""GEMM kernels compiled for real, for each interface of CK Tile's headers: each pipeline, layout, dtype and option.

The tests compile them if there is a HIP compiler; they can also be used to check another version of the headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import Interface
from ckh.ops.gemm_universal.kernel import parse_kernel_name

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.kernel import GemmKernel

# Architecture -> names without their common prefix. Each takes about 30 s to compile, mostly for the cases of the main
# loop, with and without split-K.
_OF_MID_2025: dict[str, tuple[str, ...]] = {
    "gfx942": (
        "fp16_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8",
        "bf16_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
        "fp16_crr_compv4_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
        "fp16_ccr_mem_default_interwave_True_True_True_False_128x128x64_2x2x1_32x32x16",
        "fp8_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
        "bf8_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x32_vec8_4_2",
        "int8_rcr_compv3_default_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
        "fp16_rcr_compv5_cshuffle_intrawave_True_True_True_False_64x64x64_1x1x2_32x32x16",
    ),
    "gfx90a": (
        "bf16_rcr_compv4_default_intrawave_False_False_False_False_64x64x32_2x2x1_16x16x16",
        "fp32_rcr_compv3_default_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8",
        "fp32_rcr_mem_cshuffle_intrawave_False_False_False_False_128x128x32_2x2x1_16x16x8",
        "fp16_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x32_4x1x1_4x64x16",
    ),
}

_OF_LATE_2025: dict[str, tuple[str, ...]] = {
    "gfx942": (
        "fp16_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8",
        "bf16_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
        "fp16_ccr_compv3_cshuffle_intrawave_True_True_True_True_64x64x64_2x2x1_32x32x16_vec4_8_8",
        "fp8_crr_mem_cshuffle_interwave_True_True_True_False_64x64x64_2x2x1_32x32x32",
        "bf8_rcr_compv6_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x64",
        "int8_rcr_compv4_default_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
        "fp16_rcr_compv5_cshuffle_intrawave_True_True_True_False_64x64x64_1x1x2_32x32x16",
    ),
    "gfx950": (
        "fp16_rcr_comp_async_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16",
        "fp8_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_16x16x128",
    ),
    "gfx90a": (
        "bf16_rcr_compv4_default_intrawave_False_False_False_False_64x64x32_2x2x1_16x16x16",
        "fp32_rcr_compv3_default_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8",
    ),
}
# Not emitted for the current interface.
_NOT_CURRENT = ("_compv5_", "_comp_async_")
_OF_CURRENT = {
    arch: tuple(name for name in names if not any(item in name for item in _NOT_CURRENT))
    for arch, names in _OF_LATE_2025.items()
}


def _parsed(names: dict[str, tuple[str, ...]]) -> dict[str, tuple[GemmKernel, ...]]:
    return {arch: tuple(parse_kernel_name(f"gemm_universal_{name}") for name in some) for arch, some in names.items()}


REAL_GEMM_KERNELS: dict[Interface, dict[str, tuple[GemmKernel, ...]]] = {
    Interface.MID_2025: _parsed(_OF_MID_2025),
    Interface.LATE_2025: _parsed(_OF_LATE_2025),
    Interface.CURRENT: _parsed(_OF_CURRENT),
}
