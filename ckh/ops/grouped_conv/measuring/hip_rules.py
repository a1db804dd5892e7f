"""Rules for features of convolution kernels that CK Tile's headers, or ckh's templates for them, lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LDS_TRANSPOSES, TRANSPOSED_ACCESS_BYTES, Interface, share_of_thread
from ckh.kernels.judging import RuleBook, given
from ckh.kernels.name_grammar import by
from ckh.kernels.pipelines import Scheduler, wave_group_reason, wave_groups_of
from ckh.ops.grouped_conv.kernels.variants import FILTER3X3
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.judging import Rule
    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.measuring.hip_headers import ConvHeaders

_LANES, _FP32_SIDES = 64, (16, 32)
_MAX_FP32_ATOMIC = 4  # elements
# Operands in which K is not contiguous, since late 2025.
_TRANSPOSED = {Direction.FORWARD: "", Direction.BWD_DATA: "B", Direction.BWD_WEIGHT: "AB"}
ELEMENTS = {"fp16": "ck_tile::half_t", "bf16": "ck_tile::bf16_t", "fp32": "float"}
_OF_2025 = frozenset({Interface.MID_2025, Interface.LATE_2025})

rule = RuleBook().rule


@rule
def _parts(is_complete: bool, dtype: str, variant: Direction, pipeline: str, *, headers: ConvHeaders) -> Iterator[str]:
    if not is_complete:
        yield "the kernel has missing parameters: only complete kernels can be built"
    if dtype not in ELEMENTS:
        yield f"dtype {dtype} is not one of {', '.join(ELEMENTS)}"
    if variant not in headers.directions:
        yield f"{headers.common} have no {variant} kernel"
    if pipeline not in headers.common.pipelines:
        yield f"{headers.common} have no pipeline {pipeline}"
    elif pipeline in headers.incomplete:
        yield f"{pipeline} of {headers.common} {headers.incomplete[pipeline]}"


@rule
def _other_parts(
    pads: tuple[bool, bool, bool],
    epilogue: str | None,
    layout: str | None,
    streamk: str | None,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    if not all(pads):
        yield "CK Tile's convolutions are always padded in m, n and k"
    if epilogue not in {None, "cshuffle"}:
        yield f"{headers.common} have no epilogue {epilogue}"
    if layout not in {None, *CONV_LAYOUTS.values()}:
        yield f"{headers.common} have no layout {layout}"
    if streamk is not None:
        yield "stream-K kernels are not emitted"


@rule
def _buffers(
    variant: Direction, pipeline: str, scheduler: Scheduler, double_smem_buffer: bool, *, headers: ConvHeaders
) -> Iterator[str]:
    """LDS buffers, and options that depend on them."""
    common = headers.common
    if pipeline not in common.pipelines:
        return  # rejected by _parts
    is_double = pipeline in common.double_buffered
    # In the current interface the flag also applies to the epilogue, which then shuffles one tile of a wave at a time.
    is_pipelines = common.interface in _OF_2025
    if double_smem_buffer != is_double and (is_pipelines or is_double):
        yield f"{pipeline} of {common} takes {'two LDS buffers' if is_double else 'one LDS buffer'}"
    elif is_double and variant in headers.directions - headers.two_buffers:
        yield f"{variant} kernels of {common} do not compile with two LDS buffers"
    if scheduler is Scheduler.INTERWAVE and pipeline not in headers.interwave:
        yield f"{pipeline} of {common} is not interwave"


@rule
def _options(
    variant: Direction,
    num_groups_to_merge: int,
    split_image: bool,
    explicit_gemm: bool | None,
    two_stage: bool,
    split_k: int,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    # Option -> whether the kernel uses it, and the directions that have it.
    options = {
        "merged groups": (num_groups_to_merge != 1, headers.merging),
        "split images": (split_image, headers.split_images),
        "explicit GEMM": (bool(explicit_gemm), headers.explicit),
        "second stage": (two_stage, headers.two_stages),
        "split of K": (split_k != 1, headers.splitting),
    }
    for what, (is_used, directions) in options.items():
        if is_used and variant not in directions:
            whose = f"{variant} kernels of {headers.common}" if directions else str(headers.common)
            yield f"{whose} have no {what}"


@rule
def _atomics(
    arch: ArchSpec,
    dtype: str,
    two_stage: bool,
    split_k: int,
    tile: Triple,
    wave: Triple,
    warp_tile: Triple,
    vectors: Triple,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    """Refuse parts of K in fp32 that the epilogue stores in vectors too wide for `amd_buffer_atomic_add_impl`.

    The width is that of CK Tile's CShuffleEpilogue: at most the elements that a thread has of a shuffled tile.
    """
    if split_k == 1 or not (two_stage or dtype == "fp32") or headers.common.interface is Interface.CURRENT:
        return
    width, elements = vectors[2] or 1, max(warp_tile[0] * warp_tile[1] // arch.wavefront_size, 1)
    repeats = max(min(width // elements, tile[0] // (warp_tile[0] * wave[0])), 1)
    if min(width, elements * repeats) > _MAX_FP32_ATOMIC:
        yield f"{headers.common} adds at most {_MAX_FP32_ATOMIC} fp32 elements atomically, not {width}"


@rule
def _waves(
    is_complete: bool, pipeline: str, wave: Triple, num_wave_groups: int, *, headers: ConvHeaders
) -> Iterator[str]:
    if is_complete and (reason := wave_group_reason(pipeline, wave, num_wave_groups)):
        yield reason
    elif wave[2] != 1 and not wave_groups_of(pipeline) and headers.common.interface in _OF_2025:
        # The block GEMM supports waves along M and N only: others read beyond the tile in LDS.
        yield f"{pipeline} of {headers.common} has no waves along K"


@rule
def _one_channel(
    variant: Direction, specialization: str | None, num_groups_to_merge: int, vectors: Triple, *, headers: ConvHeaders
) -> Iterator[str]:
    """Vector widths of a kernel for one channel per group that must divide it, and cannot."""
    if specialization != FILTER3X3 or num_groups_to_merge != 1:
        return
    divide = headers.one_channel.get(variant, "")
    widths = zip("ABC", vectors, strict=True)
    wide = [f"{width} elements of {item}" for item, width in widths if item in divide and (width or 1) > 1]
    if wide:
        few = f"{variant} kernels of {headers.common} for 3x3 filters take one channel per group"
        yield f"{few}, too few for vectors of {' and '.join(wide)}"


@rule
def _together(
    variant: Direction, explicit_gemm: bool | None, num_groups_to_merge: int, split_image: bool, *, headers: ConvHeaders
) -> Iterator[str]:
    """Features that the headers have, but not in combination."""
    if explicit_gemm and variant in headers.explicit:
        if num_groups_to_merge != 1:
            yield f"explicit GEMMs of {headers.common} have no merged groups"
        if split_image:
            yield f"explicit GEMMs of {headers.common} have no split images"


@rule
def _instructions(dtype: str, warp_tile: Triple, *, headers: ConvHeaders) -> Iterator[str]:
    m, n, k = warp_tile
    # Matrix instructions for fp32, ckh's and CK Tile's, have a K that is a multiple of this.
    is_emitted = dtype == "fp32" and m == n and m in _FP32_SIDES and k % (_LANES // m) == 0
    if headers.warp_gemms and not is_emitted and (ELEMENTS[dtype], warp_tile) not in headers.warp_gemms:
        yield f"{headers.common} have no {by(warp_tile)} matrix instruction for {dtype}"


@rule
def _loads(
    arch: ArchSpec,
    variant: Direction,
    pipeline: str,
    tile: Triple,
    wave: Triple,
    vectors: Triple,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    """Tiles that cannot be loaded."""
    if headers.common.interface is Interface.CURRENT:
        return  # distributes tiles differently
    transposed = _transposed(variant, headers)
    groups = wave_groups_of(pipeline)
    for operand, rows, width in zip("AB", tile, vectors, strict=False):
        lines, extent = (tile[2], rows) if operand in transposed else (rows, tile[2])
        if not share_of_thread(arch, wave, lines, extent, width or 1, groups.count if groups else 1):
            what = f"{lines} lines of {extent} elements of {operand}"
            yield f"{headers.common} cannot spread {what} over a block's threads"


@rule
def _transposition(
    arch: ArchSpec, variant: Direction, dtype: str, warp_tile: Triple, *, headers: ConvHeaders
) -> Iterator[str]:
    """Operands that LDS cannot transpose for a matrix instruction."""
    if not _transposed(variant, headers) or headers.transposing is None or arch.name != LDS_TRANSPOSES:
        return
    _, n, k = warp_tile
    accesses = n * k * DTYPE_BYTES[dtype] / arch.wavefront_size / TRANSPOSED_ACCESS_BYTES
    if (ELEMENTS[dtype], warp_tile, accesses) not in headers.transposing:
        instruction = f"{by(warp_tile)} matrix instruction for {dtype}"
        yield f"{headers.common} have no {instruction} whose operands {arch.name} transposes in LDS"


_CHOICES = (_parts, _other_parts, _buffers, _options, _atomics, _waves, _one_channel, _together)
_GEOMETRY = (_instructions, _loads, _transposition)  # for kernels that passed the rules before


def rules_of(headers: ConvHeaders) -> tuple[Rule, ...]:
    """Return the rules for these headers; each assumes that the rules before it passed."""
    return given((*_CHOICES, *_GEOMETRY), headers=headers)


def missing(kernel: ConvKernel, headers: ConvHeaders, arch: ArchSpec) -> list[str]:
    """Return what the headers, or ckh's templates for them, lack for a kernel; empty if buildable."""
    choices, geometry = given(_CHOICES, headers=headers), given(_GEOMETRY, headers=headers)
    reasons = [reason for choice in choices for reason in choice(kernel, arch)]
    return reasons or [reason for item in geometry for reason in item(kernel, arch)]


def _transposed(variant: Direction, headers: ConvHeaders) -> str:
    return _TRANSPOSED[variant] if headers.common.interface is Interface.LATE_2025 else ""
