"""CK Tile's `IsSupportedArgument`, restated from the text of its headers of November 2025, without ckh's rules.

Sources: `universal_gemm_kernel.hpp`, `gemm_universal_pipeline_ag_bg_cr_policy.hpp`, `cshuffle_epilogue.hpp`,
`default_2d_epilogue.hpp`, `grouped_convolution_forward_kernel.hpp`, and those of the backward directions.
"""

from __future__ import annotations

from itertools import product
from math import gcd
from typing import TYPE_CHECKING, Any

from ckh.problems import Direction

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp8": 1, "bf8": 1, "int8": 1}
_OUT_BYTES = {"fp32": 4, "int8": 4}  # else 2
_WAVE = 64
_MAX_GEMMS = 128


def accepts_gemm(kernel: Any, m: int, n: int, k: int, k_batch: int = 1, num_d: int = 0) -> bool:
    """True if a complete GEMM kernel for waves of 64 accepts these sizes, of which C is row-major."""
    size, out = _BYTES[kernel.dtype], _OUT_BYTES.get(kernel.dtype, 2)
    threads = _WAVE * kernel.wave_m * kernel.wave_n * kernel.wave_k

    def load(rows: int, extent: int) -> int:
        """`GetGlobalVectorLoadSize`."""
        each = rows * kernel.tile_k // threads
        for width_bytes in (16, 8, 4, 2):
            width = width_bytes // size
            is_tried = width_bytes >= 8 or size >= width_bytes
            if is_tried and extent % width == 0 and each % width == 0:
                return width
        return 1

    a_is_row, b_is_row = (letter == "r" for letter in kernel.layout[:2])
    a = kernel.vector_a or load(kernel.tile_m, kernel.tile_k if a_is_row else kernel.tile_m)
    b = kernel.vector_b or load(kernel.tile_n, kernel.tile_n if b_is_row else kernel.tile_k)
    d = min(kernel.warp_tile_n * kernel.wave_n, 16 // out) if kernel.epilogue == "cshuffle" else 1
    c = (kernel.vector_c or d) if kernel.epilogue == "cshuffle" else 1
    if k_batch != 1 and out == 2 and c % 2:
        return False
    axes = {
        "m": (m, kernel.tile_m, kernel.pad_m),
        "n": (n, kernel.tile_n, kernel.pad_n),
        "k": (k, kernel.tile_k * k_batch, kernel.pad_k),
    }
    operands = [("k" if a_is_row else "m", a), ("n" if b_is_row else "k", b), ("n", c), *[("n", d)] * num_d]
    for axis, width in operands:
        extent, tile, is_padded = axes[axis]
        if (extent % tile and not is_padded) or extent % width:
            return False
    return True


def accepts_conv(kernel: ConvKernel, problem: ConvProblem) -> bool:
    """True if a convolution kernel accepts a problem, whose sizes are of all groups."""
    c, k = problem.c // problem.g, problem.k // problem.g
    a, b, out = (width or 1 for width in (kernel.vector_a, kernel.vector_b, kernel.vector_c))
    widths = {
        Direction.FORWARD: ((c, a), (c, b), (k, out)),
        Direction.BWD_DATA: ((c, b), (c, out), (k, a)),
        Direction.BWD_WEIGHT: ((c, b), (c, out), (k, a)),
    }[problem.variant]
    filters, strides, pads, dilations = (
        [getattr(problem, name) for name in names][3 - problem.ndim :]
        for names in (
            ("z", "y", "x"),
            ("stride_d", "stride_h", "stride_w"),
            ("pad_d", "pad_h", "pad_w"),
            ("dilation_d", "dilation_h", "dilation_w"),
        )
    )
    is_point = set(filters) == {1} and set(pads) == {0}
    special = {
        "filter1x1_stride1_pad0": is_point and set(strides) == {1},
        "filter1x1_pad0": is_point,
        "filter3x3": c == 1 and set(filters) == {3},
    }
    if problem.variant is Direction.BWD_DATA:
        tildes = [stride // gcd(stride, dilation) for stride, dilation in zip(strides, dilations, strict=True)]
        places = product(*(range(tilde) for tilde in tildes))
        gemms = sum(all(at < taps for at, taps in zip(place, filters, strict=True)) for place in places)
        if gemms > _MAX_GEMMS:
            return False
    merged = kernel.num_groups_to_merge
    if problem.variant is Direction.BWD_WEIGHT and problem.g % merged:
        return False
    is_forward_merged = problem.variant is Direction.FORWARD and merged > 1  # reads and stores across groups
    is_whole = is_forward_merged or all(channels % width == 0 for channels, width in widths)
    return is_whole and special.get(str(kernel.specialization), True)
