"""Rules for features of GEMM kernels that CK Tile's headers, or ckh's templates for them, lack or compute wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LDS_TRANSPOSES, TRANSPOSED_ACCESS_BYTES, share_of_thread
from ckh.bench.codegen.interfaces import Interface
from ckh.kernels.judging import RuleBook, given
from ckh.kernels.name_grammar import by
from ckh.kernels.pipelines import (
    LATE_PIPELINES,
    PACK_REPEATING_PIPELINES,
    TABLE_PIPELINES,
    Scheduler,
    wave_group_reason,
    wave_groups_of,
)
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.kernels.vectors import MAX_VECTOR_BYTES, load_widths
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, contiguous_axes, output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.gemm_universal.measuring.hip_headers import GemmHeaders

ELEMENTS = {
    "fp16": "ck_tile::half_t",
    "bf16": "ck_tile::bf16_t",
    "fp32": "float",
    "fp8": "ck_tile::fp8_t",
    "bf8": "ck_tile::bf8_t",
    "int8": "ck_tile::int8_t",
}
# Reasons why further pipelines of an interface are not emitted.
_ORDERED_B = {"preshufflev2": "preshufflev2 of {headers} requires a preshuffled B"}
_NOT_EMITTED: dict[Interface, dict[str, str]] = {
    Interface.MID_2025: {},
    Interface.LATE_2025: _ORDERED_B,
    Interface.CURRENT: {
        **_ORDERED_B,
        "compv5": "the epilogues of {headers} have no second wave group, which compv5 requires",
    },
}
# The pipelines that ckh's templates support.
EMITTED = {
    Interface.MID_2025: frozenset(TABLE_PIPELINES) - LATE_PIPELINES,
    Interface.LATE_2025: frozenset(TABLE_PIPELINES) | LATE_PIPELINES,
    Interface.CURRENT: frozenset(TABLE_PIPELINES) - _NOT_EMITTED[Interface.CURRENT].keys(),
}
_FP32_SIDES = (16, 32)  # of the instructions in ckh's templates for 2025, whose K is a multiple of 64 / side
_WAVEFRONT = 64
# Bytes of an element -> side of the transposed squares. (Squares of two 8-bit elements exist, but give wrong results.)
_TRANSPOSED_BYTES = {1: 4, 2: 2}
# Of 2025. It has no scheduler: the scheduler in its name has no effect.
_UNSCHEDULED = "basic_v1"
_PACK_BYTES = 16  # of a row that is read from LDS at once


rule = RuleBook().rule


@rule
def _kernel(is_complete: bool, *, headers: GemmHeaders) -> Iterator[str]:
    if not headers.has_kernel:
        yield f"{headers.common} have no universal GEMM kernel"
    elif not is_complete:
        yield "the kernel has missing parameters: only complete kernels can be built"


@rule
def _pipeline(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    common = headers.common
    if reason := _NOT_EMITTED[common.interface].get(pipeline):
        yield reason.format(headers=common)
    elif pipeline not in common.pipelines:
        yield f"{common} have no pipeline {pipeline}"
    elif pipeline not in EMITTED[common.interface]:
        yield f"GEMM kernels with {pipeline} of {common} are not emitted"
    elif pipeline in headers.incomplete:
        yield f"{pipeline} of {common} lacks members that their GEMM kernel requires"


@rule
def _parts(
    suffix: str, layout: str, epilogue: str | None, dtype: str, warp_tile: Triple, *, headers: GemmHeaders
) -> Iterator[str]:
    """Parts that the headers lack altogether."""
    if suffix:
        yield f"the suffix {suffix} of the name has no known meaning"
    if layout not in GEMM_LAYOUTS:
        yield f"layout {layout} is not one of {', '.join(GEMM_LAYOUTS)}"
    if epilogue not in headers.epilogues:
        yield f"{headers.common} have no epilogue {epilogue}"
    if dtype not in ELEMENTS:
        yield f"dtype {dtype} is not one of {', '.join(ELEMENTS)}"
    elif not _has_warp_gemm(dtype, warp_tile, headers):
        yield f"{headers.common} have no {by(warp_tile)} matrix instruction for {dtype}"


@rule
def _options(
    pipeline: str, scheduler: Scheduler, persistent: bool, dtype: str, warp_tile: Triple, *, headers: GemmHeaders
) -> Iterator[str]:
    """Options that a pipeline of the headers lacks or computes wrongly."""
    common = headers.common
    if pipeline not in EMITTED[common.interface]:
        return  # rejected by _pipeline
    is_unscheduled = pipeline == _UNSCHEDULED and not headers.is_current
    if scheduler is Scheduler.INTERWAVE and pipeline not in headers.interwave and not is_unscheduled:
        yield f"{pipeline} of {common} is not interwave"
    if persistent and pipeline not in headers.persistent:
        yield f"{pipeline} of {common} has no persistent kernels"
    elif persistent and (reason := racing_reason(headers)):
        yield reason
    is_repeated = pipeline in PACK_REPEATING_PIPELINES and headers.is_current  # pipelines of 2025 read a row at once
    if is_repeated and dtype in ELEMENTS and _row_bytes_of_thread(dtype, warp_tile) > _PACK_BYTES:
        most = f"{_PACK_BYTES} bytes of a row"
        yield f"{pipeline} of {common} multiplies a tile more than once if a thread has over {most}"


@rule
def _waves(pipeline: str, wave: Triple, *, headers: GemmHeaders) -> Iterator[str]:
    if pipeline not in EMITTED[headers.common.interface]:
        return  # rejected by _pipeline
    if wave_groups_of(pipeline):
        if reason := wave_group_reason(pipeline, wave):
            yield reason
    elif wave[2] != 1:
        yield f"{pipeline} of {headers.common} has no waves along K"


@rule
def _layouts(
    arch: ArchSpec, layout: str, pipeline: str, scheduler: Scheduler, *, headers: GemmHeaders
) -> Iterator[str]:
    is_known = layout != "rcr" and layout in GEMM_LAYOUTS
    if not is_known or not _steps_along_k(pipeline, scheduler, headers):
        return
    # ckh's pipeline for late 2025 steps along K in every layout, but does not support operands transposed by LDS.
    if pipeline == _UNSCHEDULED and headers.common.interface is Interface.LATE_2025:
        if _transposes_in_lds(headers, arch):
            yield f"{pipeline} of {headers.common} does not take operands that {arch.name} transposes in LDS"
        return
    is_interwave = headers.is_current and scheduler is Scheduler.INTERWAVE
    how = f"interwave {pipeline}" if is_interwave else pipeline
    yield f"{how} of {headers.common} reads wrong tiles of operands in which K is not contiguous"


@rule
def _vectors(
    arch: ArchSpec,
    dtype: str,
    layout: str,
    pipeline: str,
    tile: Triple,
    wave: Triple,
    vectors: Triple,
    *,
    headers: GemmHeaders,
) -> Iterator[str]:
    """Tiles that cannot be loaded, and vector widths that cannot be set or give wrong results."""
    if layout not in GEMM_LAYOUTS or dtype not in ELEMENTS:
        return
    native = load_widths(dtype, layout, tile, wave, arch)
    for number, (operand, outer) in enumerate(zip("AB", "mn", strict=True)):
        contiguous, sizes = contiguous_axes(layout)[number], dict(zip("mnk", tile, strict=True))
        is_transposed, stated = contiguous != "k", vectors[number]
        if (
            is_transposed
            and headers.common.interface is Interface.MID_2025
            and stated not in {NATIVE_WIDTH, native[number]}
        ):
            only = f"its native vector width {native[number]} only, not {stated}"
            yield f"{headers.common} transpose {operand} with {only}"
            continue
        lines, extent = sizes["k" if is_transposed else outer], sizes[contiguous]
        share = share_of_thread(arch, wave, lines, extent, stated or native[number], _wave_groups(pipeline))
        if share is None:
            what = f"{lines} lines of {extent} elements of {operand}"
            yield f"{headers.common} cannot spread {what} over a block's threads"
        elif is_transposed and not (_transposes_in_lds(headers, arch) or _transposes(dtype, headers, share)):
            yield f"{headers.common} cannot transpose {' x '.join(map(str, share))} elements of {operand} in {dtype}"


@rule
def _stores(epilogue: str | None, vector_c: int, *, headers: GemmHeaders) -> Iterator[str]:
    if epilogue == "default" and vector_c not in {NATIVE_WIDTH, 1}:
        yield f"the default epilogue of {headers.common} stores single elements"


@rule
def stored_together(
    arch: ArchSpec,
    dtype: str,
    epilogue: str | None,
    tile: Triple,
    wave: Triple,
    warp_tile: Triple,
    vector_c: int,
    *,
    headers: GemmHeaders,
) -> Iterator[str]:
    """Rows of C that the epilogue of 2025 stores wrongly: it takes several instructions of a wave along M at a time."""
    if epilogue != "cshuffle" or headers.is_current or dtype not in ELEMENTS:
        return
    count = tile[0] // (wave[0] * warp_tile[0])
    width = vector_c or min(wave[1] * warp_tile[1], int(MAX_VECTOR_BYTES / DTYPE_BYTES[output_dtype(dtype)]))
    together = min(max(width // (warp_tile[0] * warp_tile[1] // arch.wavefront_size), 1), max(count, 1))
    if count % together:
        yield f"{epilogue} of {headers.common} stores {together} of a wave's {count} instructions along M at once"


@rule
def _transposition(
    arch: ArchSpec, dtype: str, layout: str, warp_tile: Triple, *, headers: GemmHeaders
) -> Iterator[str]:
    """Operands that gfx950's LDS cannot transpose for a matrix instruction."""
    is_transposed = layout in GEMM_LAYOUTS and layout != "rcr"
    if headers.transposing is None or arch.name != LDS_TRANSPOSES or not is_transposed or dtype not in ELEMENTS:
        return
    _, n, k = warp_tile
    accesses = n * k * DTYPE_BYTES[dtype] / arch.wavefront_size / TRANSPOSED_ACCESS_BYTES
    if (ELEMENTS[dtype], warp_tile, accesses) not in headers.transposing:
        instruction = f"{by(warp_tile)} matrix instruction for {dtype}"
        yield f"{headers.common} have no {instruction} whose operands {arch.name} transposes in LDS"


RULES_OF_ANY_PIPELINE = (_kernel, _parts, _stores)
_FURTHER = (_pipeline, _parts, _options, _waves, _layouts, _vectors, _stores, stored_together, _transposition)


def rules_of(headers: GemmHeaders) -> tuple[Rule, ...]:
    """Return the rules for these headers; the rules after the first assume that it passed."""
    return given((_kernel, *_FURTHER), headers=headers)


def racing_reason(headers: GemmHeaders) -> str:
    """Return why persistent kernels of these headers are wrong; empty if they are not."""
    race = "race: they load a tile into LDS while waves still read the one before"
    return f"persistent kernels of {headers.common} {race}" if headers.races_between_tiles else ""


def missing(kernel: GemmKernel, headers: GemmHeaders, arch: ArchSpec) -> list[str]:
    """Return what the headers, or ckh's templates, lack for a kernel on an architecture; empty if buildable."""
    first, *further = rules_of(headers)
    reasons = list(first(kernel, arch))
    return reasons or [reason for item in further for reason in item(kernel, arch)]


def _transposes_in_lds(headers: GemmHeaders, arch: ArchSpec) -> bool:
    """True if operands are transposed on reading from LDS, not before writing to it."""
    return headers.transposing is not None and arch.name == LDS_TRANSPOSES


def _transposes(dtype: str, headers: GemmHeaders, share: tuple[int, int]) -> bool:
    """True if the elements of a thread can be transposed in registers."""
    step = _TRANSPOSED_BYTES.get(int(DTYPE_BYTES[dtype]))
    is_square = step is not None and not any(number % step for number in share)
    return 1 in share or headers.transposes_all or is_square


def _wave_groups(pipeline: str) -> int:
    needed = wave_groups_of(pipeline)
    return 1 if needed is None else needed.count


def _row_bytes_of_thread(dtype: str, warp_tile: Triple) -> int:
    """Bytes of one row of A, or column of B, per thread for one matrix instruction."""
    m, n, k = warp_tile
    return int(k * max(m, n) // _WAVEFRONT * DTYPE_BYTES[dtype])


def _steps_along_k(pipeline: str, scheduler: Scheduler, headers: GemmHeaders) -> bool:
    is_unscheduled = pipeline == _UNSCHEDULED and not headers.is_current
    return (pipeline, Scheduler.INTRAWAVE if is_unscheduled else scheduler) in headers.along_k


def _has_warp_gemm(dtype: str, warp_tile: Triple, headers: GemmHeaders) -> bool:
    m, n, k = warp_tile
    if dtype == "fp32" and not headers.is_current:
        return m == n and m in _FP32_SIDES and k % (_WAVEFRONT // m) == 0
    return (ELEMENTS[dtype], warp_tile) in headers.warp_gemms
