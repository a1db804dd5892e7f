"""Convolutions for the `hip` device: a kernel of the table as one CK Tile translation unit.

What CK Tile's headers, or ours for them in `templates/ck_tile`, lack is refused with the reason, never replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LABEL, LABEL_BYTES, Interface
from ckh.bench.codegen.source import translation_unit
from ckh.bench.codegen.unsupported import UnsupportedKernelError
from ckh.kernels.pipelines import wave_group_reason
from ckh.kernels.scheduler import Scheduler
from ckh.ops.grouped_conv.names import kernel_name
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.ops.grouped_conv.tiles import wave_of
from ckh.ops.grouped_conv.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.bench.codegen.ck_tile import Headers
    from ckh.ops.grouped_conv.kernel import ConvKernel

ELEMENTS = {"fp16": "ck_tile::half_t", "bf16": "ck_tile::bf16_t", "fp32": "float"}
_SPECIALIZATIONS = {
    "default": "Default",
    FILTER1X1_PAD0: "Filter1x1Pad0",
    FILTER1X1_STRIDE1_PAD0: "Filter1x1Stride1Pad0",
    FILTER3X3: "Filter3x3",
}
_INTEGERS = (
    *("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k", "warp_tile_m", "warp_tile_n", "warp_tile_k"),
    *("vector_a", "vector_b", "vector_c", "num_groups_to_merge", "num_wave_groups", "split_k", "block_per_cu"),
)
_BOOLEANS = ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm")


def emit(kernel: ConvKernel, headers: Headers) -> str:
    """The C++ source of one kernel.

    Raises:
        UnsupportedKernelError: these headers cannot build it; says why.
    """
    reasons = missing(kernel, headers)
    if reasons:
        raise UnsupportedKernelError("; ".join(reasons))
    specialization = _SPECIALIZATIONS[str(kernel.specialization)]
    lines = [
        f'inline constexpr char label[{LABEL_BYTES}] = "{LABEL}{kernel_name(kernel)}";',
        f"using Element = {ELEMENTS[kernel.dtype]};",
        f"inline constexpr int ndim_spatial = {kernel.ndim_spatial};",
        f"inline constexpr Variant variant = Variant::{kernel.variant};",
        f"inline constexpr Pipeline pipeline = Pipeline::{kernel.pipeline};",
        f"inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()};",
        f"inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::{specialization};",
        *(f"inline constexpr ck_tile::index_t {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr bool {name} = {str(bool(getattr(kernel, name))).lower()};" for name in _BOOLEANS),
    ]
    return translation_unit("vocabulary.hpp", lines, f"{headers.interface}.hpp", "abi.hpp")


def missing(kernel: ConvKernel, headers: Headers) -> list[str]:
    """Everything that the headers, or our templates for them, lack for a kernel; empty if they can build it."""
    which = f"the CK Tile headers ({headers.interface})"
    reasons = []
    if not kernel.is_complete:
        reasons.append("the kernel leaves parameters out: only complete kernels can be built")
    if kernel.dtype not in ELEMENTS:
        reasons.append(f"dtype {kernel.dtype} is not one of {', '.join(ELEMENTS)}")
    if kernel.variant not in headers.directions:
        reasons.append(f"{which} have no {kernel.variant} kernel")
    if kernel.pipeline not in headers.pipelines:
        reasons.append(f"{which} have no pipeline {kernel.pipeline}")
    if not all((kernel.pad_m, kernel.pad_n, kernel.pad_k)):
        reasons.append("CK Tile's convolutions are always padded in m, n and k")
    if kernel.epilogue not in {None, "cshuffle"}:
        reasons.append(f"{which} have no epilogue {kernel.epilogue}")
    if kernel.layout not in {None, *CONV_LAYOUTS.values()}:
        reasons.append(f"{which} have no layout {kernel.layout}")
    if kernel.streamk is not None:
        reasons.append("stream-K kernels are not emitted")
    reasons += _missing_wave_groups(kernel)
    if headers.interface is Interface.MID_2025:
        return [*reasons, *_missing_in_mid_2025(kernel, headers, which)]
    return [*reasons, *(reason for reason, is_missing in _missing_in_current(kernel, headers, which) if is_missing)]


def _missing_wave_groups(kernel: ConvKernel) -> Iterator[str]:
    if kernel.is_complete and (reason := wave_group_reason(kernel.pipeline, wave_of(kernel), kernel.num_wave_groups)):
        yield reason


def _missing_in_mid_2025(kernel: ConvKernel, headers: Headers, which: str) -> Iterator[str]:
    is_double = kernel.pipeline in headers.double_buffered
    if kernel.pipeline in headers.pipelines and kernel.double_smem_buffer != is_double:
        yield f"{kernel.pipeline} of {which} takes {'two LDS buffers' if is_double else 'one LDS buffer'}"
    if kernel.scheduler is Scheduler.INTERWAVE and kernel.pipeline != "mem":
        yield f"{kernel.pipeline} of {which} is not interwave"
    options = {
        "merged groups": kernel.num_groups_to_merge != 1,
        "split images": kernel.split_image,
        "explicit GEMMs": bool(kernel.explicit_gemm),
        "second stages": kernel.two_stage,
    }
    yield from (f"{which} have no {what}" for what, is_used in options.items() if is_used)


def _missing_in_current(kernel: ConvKernel, headers: Headers, which: str) -> Iterator[tuple[str, bool]]:
    """Reasons, each with whether it holds."""
    pipeline, variant = kernel.pipeline, kernel.variant
    is_explicit, merges = bool(kernel.explicit_gemm), kernel.num_groups_to_merge != 1
    needs_double = pipeline in headers.double_buffered
    is_interwave = kernel.scheduler is Scheduler.INTERWAVE
    yield f"{pipeline} of {which} lacks what their convolutions ask it for", pipeline in headers.incomplete
    yield f"{pipeline} of {which} is not interwave", is_interwave and pipeline in headers.intrawave_only
    # Elsewhere the flag is the epilogue's, which then shuffles one tile of a wave at a time.
    yield f"{pipeline} of {which} takes two LDS buffers", needs_double and not kernel.double_smem_buffer
    has_split = headers.split_images and variant is Direction.FORWARD
    yield f"{variant} kernels of {which} have no split images", kernel.split_image and not has_split
    yield f"{variant} kernels of {which} have no merged groups", merges and variant is Direction.BWD_DATA
    yield f"{variant} kernels of {which} have no explicit GEMM", is_explicit and variant is Direction.BWD_DATA
    yield f"explicit GEMMs of {which} have no merged groups", is_explicit and merges
    yield f"explicit GEMMs of {which} have no split images", is_explicit and kernel.split_image
    yield f"{variant} kernels of {which} have no second stage", kernel.two_stage and variant is not Direction.BWD_WEIGHT
    yield f"{variant} kernels of {which} cannot split K", kernel.split_k != 1 and variant is Direction.FORWARD
