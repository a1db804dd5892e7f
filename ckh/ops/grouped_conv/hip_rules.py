"""Rules for what CK Tile's headers, or ours for them, lack for a convolution's kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.interfaces import Interface
from ckh.bench.codegen.tile_loads import LDS_TRANSPOSES, TRANSPOSED_ACCESS_BYTES, share_of_thread
from ckh.kernels.pipelines import wave_group_reason, wave_groups_of
from ckh.kernels.scheduler import Scheduler
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.ops.grouped_conv.tiles import warp_tile_of, wave_of
from ckh.ops.grouped_conv.variants import FILTER3X3
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.ops.grouped_conv.hip_headers import ConvHeaders
    from ckh.ops.grouped_conv.kernel import ConvKernel

_LANES, _FP32_SIDES = 64, (16, 32)
# Operands in which K is not contiguous, since late 2025.
_TRANSPOSED = {Direction.FORWARD: "", Direction.BWD_DATA: "B", Direction.BWD_WEIGHT: "AB"}
ELEMENTS = {"fp16": "ck_tile::half_t", "bf16": "ck_tile::bf16_t", "fp32": "float"}
_OF_2025 = frozenset({Interface.MID_2025, Interface.LATE_2025})


def missing(kernel: ConvKernel, headers: ConvHeaders, arch: ArchSpec) -> list[str]:
    """Everything that the headers, or our templates for them, lack for a kernel; empty if they can build it."""
    rules = (_missing_parts, _missing_buffers, _missing_options, _missing_together)
    reasons = [reason for rule in rules for reason in rule(kernel, headers)]
    if not reasons:
        reasons += [*_missing_instructions(kernel, headers), *_missing_loads(kernel, headers, arch)]
    return [reason.format(which=headers.common) for reason in reasons]


def _missing_parts(kernel: ConvKernel, headers: ConvHeaders) -> Iterator[str]:
    if not kernel.is_complete:
        yield "the kernel leaves parameters out: only complete kernels can be built"
    if kernel.dtype not in ELEMENTS:
        yield f"dtype {kernel.dtype} is not one of {', '.join(ELEMENTS)}"
    if kernel.variant not in headers.directions:
        yield f"{{which}} have no {kernel.variant} kernel"
    if kernel.pipeline not in headers.common.pipelines:
        yield f"{{which}} have no pipeline {kernel.pipeline}"
    elif kernel.pipeline in headers.incomplete:
        yield f"{kernel.pipeline} of {{which}} {headers.incomplete[kernel.pipeline]}"
    if not all((kernel.pad_m, kernel.pad_n, kernel.pad_k)):
        yield "CK Tile's convolutions are always padded in m, n and k"
    if kernel.epilogue not in {None, "cshuffle"}:
        yield f"{{which}} have no epilogue {kernel.epilogue}"
    if kernel.layout not in {None, *CONV_LAYOUTS.values()}:
        yield f"{{which}} have no layout {kernel.layout}"
    if kernel.streamk is not None:
        yield "stream-K kernels are not emitted"


def _missing_buffers(kernel: ConvKernel, headers: ConvHeaders) -> Iterator[str]:
    """Of LDS, and what its use depends on."""
    common, pipeline = headers.common, kernel.pipeline
    if pipeline not in common.pipelines:
        return  # _missing_parts has said so
    is_double = pipeline in common.double_buffered
    # In the current interface the flag is also the epilogue's, which then shuffles one tile of a wave at a time.
    is_pipelines = common.interface in _OF_2025
    if kernel.double_smem_buffer != is_double and (is_pipelines or is_double):
        yield f"{pipeline} of {{which}} takes {'two LDS buffers' if is_double else 'one LDS buffer'}"
    elif is_double and kernel.variant in headers.directions - headers.two_buffers:
        yield f"{kernel.variant} kernels of {{which}} do not compile with two LDS buffers"
    if kernel.scheduler is Scheduler.INTERWAVE and pipeline not in headers.interwave:
        yield f"{pipeline} of {{which}} is not interwave"


def _missing_options(kernel: ConvKernel, headers: ConvHeaders) -> Iterator[str]:
    # What may be used -> whether it is, and the directions that have it.
    options = {
        "merged groups": (kernel.num_groups_to_merge != 1, headers.merging),
        "split images": (kernel.split_image, headers.split_images),
        "explicit GEMM": (bool(kernel.explicit_gemm), headers.explicit),
        "second stage": (kernel.two_stage, headers.two_stages),
        "split of K": (kernel.split_k != 1, headers.splitting),
    }
    for what, (is_used, directions) in options.items():
        if is_used and kernel.variant not in directions:
            whose = f"{kernel.variant} kernels of {{which}}" if directions else "{which}"
            yield f"{whose} have no {what}"


def _missing_together(kernel: ConvKernel, headers: ConvHeaders) -> Iterator[str]:
    """Parts that the headers have, but not together."""
    if kernel.is_complete and (reason := wave_group_reason(kernel.pipeline, wave_of(kernel), kernel.num_wave_groups)):
        yield reason
    elif kernel.wave_k != 1 and not wave_groups_of(kernel.pipeline) and headers.common.interface in _OF_2025:
        # Their block GEMM knows waves along M and N: others read beyond the tile in LDS.
        yield f"{kernel.pipeline} of {{which}} has no waves along K"
    if wide := _too_wide_for_one_channel(kernel, headers):
        few = f"{kernel.variant} kernels of {{which}} for 3x3 filters take one channel a group"
        yield f"{few}, too few for vectors of {' and '.join(wide)}"
    if kernel.explicit_gemm and kernel.variant in headers.explicit:
        if kernel.num_groups_to_merge != 1:
            yield "explicit GEMMs of {which} have no merged groups"
        if kernel.split_image:
            yield "explicit GEMMs of {which} have no split images"


def _too_wide_for_one_channel(kernel: ConvKernel, headers: ConvHeaders) -> list[str]:
    """The vectors of a kernel for one channel a group that have to divide it, and cannot."""
    if kernel.specialization != FILTER3X3 or kernel.num_groups_to_merge != 1:
        return []
    widths = {"A": kernel.vector_a, "B": kernel.vector_b, "C": kernel.vector_c}
    divide = headers.one_channel.get(kernel.variant, "")
    return [f"{width} elements of {one}" for one, width in widths.items() if one in divide and (width or 1) > 1]


def _missing_instructions(kernel: ConvKernel, headers: ConvHeaders) -> Iterator[str]:
    m, n, k = tile = warp_tile_of(kernel)
    # Ours and CK Tile's own for fp32 are of instructions whose K is a multiple of this.
    is_emitted = kernel.dtype == "fp32" and m == n and m in _FP32_SIDES and k % (_LANES // m) == 0
    if headers.warp_gemms and not is_emitted and (ELEMENTS[kernel.dtype], tile) not in headers.warp_gemms:
        yield f"{{which}} have no {_by(tile)} matrix instruction for {kernel.dtype}"


def _missing_loads(kernel: ConvKernel, headers: ConvHeaders, arch: ArchSpec) -> Iterator[str]:
    """Tiles that cannot be loaded, or not be transposed."""
    if headers.common.interface is Interface.CURRENT:
        return  # which spreads tiles otherwise
    transposed = _TRANSPOSED[kernel.variant] if headers.common.interface is Interface.LATE_2025 else ""
    for operand, rows, width in (("A", kernel.tile_m, kernel.vector_a), ("B", kernel.tile_n, kernel.vector_b)):
        lines, extent = (kernel.tile_k, rows) if operand in transposed else (rows, kernel.tile_k)
        groups = wave_groups_of(kernel.pipeline)
        if not share_of_thread(arch, wave_of(kernel), lines, extent, width or 1, groups.count if groups else 1):
            yield f"{{which}} cannot spread {lines} lines of {extent} elements of {operand} over a block's threads"
    if transposed and headers.transposing is not None and arch.name == LDS_TRANSPOSES:
        yield from _missing_transposition(kernel, headers, arch)


def _missing_transposition(kernel: ConvKernel, headers: ConvHeaders, arch: ArchSpec) -> Iterator[str]:
    """Operands that LDS does not transpose for a matrix instruction."""
    assert headers.transposing is not None
    _, n, k = tile = warp_tile_of(kernel)
    accesses = n * k * DTYPE_BYTES[kernel.dtype] / arch.wavefront_size / TRANSPOSED_ACCESS_BYTES
    if (ELEMENTS[kernel.dtype], tile, accesses) not in headers.transposing:
        instruction = f"{_by(tile)} matrix instruction for {kernel.dtype}"
        yield f"{{which}} have no {instruction} whose operands {arch.name} transposes in LDS"


def _by(sizes: Triple) -> str:
    return "x".join(map(str, sizes))
