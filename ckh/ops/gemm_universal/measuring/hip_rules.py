"""Rules for features of GEMM kernels that CK Tile's headers, or ckh's templates for them, lack or compute wrongly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import (
    LDS_TRANSPOSES,
    PIPELINE_HEADERS,
    TRANSPOSED_ACCESS_BYTES,
    Interface,
    share_of_thread,
    template_parameters,
    transposing_warp_gemms,
    warp_gemms,
)
from ckh.kernels.declaration import by
from ckh.kernels.judging import RuleBook, given
from ckh.kernels.pipelines import (
    LATE_PIPELINES,
    PACK_REPEATING_PIPELINES,
    TABLE_PIPELINES,
    Scheduler,
    wave_group_reason,
    wave_groups_of,
)
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.kernels.problem_rules import MAX_VECTOR_BYTES, load_widths
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, contiguous_axes, output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_universal.kernel import GemmKernel


_GEMM = Path("ck_tile/ops/gemm")
_KERNEL = _GEMM / "kernel/universal_gemm_kernel.hpp"
_POLICY = _GEMM / "pipeline/gemm_universal_pipeline_ag_bg_cr_policy.hpp"
_TRANSPOSE = Path("ck_tile/core/utility/transpose_vectors.hpp")
# Epilogue -> its header, and its name in ckh's headers.
EPILOGUES = {
    "cshuffle": (Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp"), "cshuffle"),
    "default": (Path("ck_tile/ops/epilogue/default_2d_epilogue.hpp"), "direct"),
}
# Template parameters that ckh's headers for the current interface pass, besides those that `detect_interface` checks.
_KERNEL_PARAMETERS = ("TilePartitioner_", "GemmPipeline_", "EpiloguePipeline_")
_DEFAULT_EPILOGUE_PARAMETERS = (
    *("AsDataType_", "BsDataType_", "DsDataType_", "AccDataType_", "ODataType_", "DsLayout_", "CLayout_"),
    *("CDElementwise_", "kM_", "kN_", "kPadM_", "kPadN_", "kMPerXdl_", "kNPerXdl_", "kKPerXdl_", "isCTransposed_"),
    "UseRawStore_",
)
# Text by which a pipeline's header declares a feature.
_INTERWAVE = "PipelineImpl<GemmPipelineScheduler::Interwave>"
_PERSISTENT = re.compile(r"UsePersistentKernel\s*=(?!\s*false)")
# Windows that move along K as if it were the second axis, whatever the layout.
_STEPS_ALONG_K = ("{0, kKPerBlock}", "make_array(0, 0) : make_array(0, KPerBlock)")
_LOOP_FROM_PROBLEM = "Problem::HasHotLoop"  # absent from problems of the current interface
# Members that the kernel's header requires of pipelines, and their declaration in a pipeline's header.
_NEEDED = {"GetVectorSizeA<true>": re.compile(r"\bIsWave32Host\b"), "::Preshuffle": re.compile(r"\bPreshuffle\s*=")}
_PADS_ADDED_ROWS = "pad_not_contiguous_dim"
_TRANSPOSES_ALL = "generic_tag"
_LOADS_TRANSPOSED = "is_a_load_tr"
_BARRIER_BETWEEN_TILES = "s_waitcnt_barrier"


@dataclass(frozen=True, slots=True)
class GemmHeaders:
    """Features of CK Tile's headers for GEMM kernels."""

    common: Headers  # features shared by all kernels
    has_kernel: bool  # whether the universal GEMM kernel is present
    epilogues: frozenset[str]  # available epilogues
    interwave: frozenset[str]  # the pipelines that have this scheduler
    persistent: frozenset[str]  # the pipelines that have persistent kernels
    warp_gemms: frozenset[tuple[str, Triple]]
    """CK Tile's element type of A and B, and the tile, of every matrix instruction."""
    incomplete: frozenset[str] = frozenset()
    """For current headers, the pipelines that lack members that the kernel requires."""
    along_k: frozenset[tuple[str, Scheduler]] = frozenset()
    """Pipelines and schedulers that step along the rows of A and the columns of B whatever the layout."""
    transposes_all: bool = False  # whether operands of any element type and any shape can be transposed
    transposing: frozenset[tuple[str, Triple, int]] | None = None
    """For headers whose pipelines use gfx950's LDS transpose, the matrix instructions that support it: element
    type, tile, and number of LDS accesses of a lane; None for other headers."""
    races_between_tiles: bool = False
    """Whether a persistent kernel loads a tile while waves still read the previous tile."""
    pads_added_rows: bool = False
    """For current headers, whether a kernel that adds bf16 atomically stops at the last row."""

    @property
    def is_current(self) -> bool:
        """True for headers of the current interface."""
        return self.common.interface is Interface.CURRENT


def detect_gemm(headers: Headers) -> GemmHeaders:
    """Detect the features of headers for GEMM kernels; an unreadable header counts as absent."""
    is_current = headers.interface is Interface.CURRENT
    pipelines = {name: headers.text(path) for name, path in PIPELINE_HEADERS.items()}
    kernel = headers.text(_KERNEL)
    has_kernel = bool(kernel)
    epilogues = {name: text for name, (path, _) in EPILOGUES.items() if (text := headers.text(path))}
    if is_current:
        has_kernel = _has_parameters(kernel, "UniversalGemmKernel", _KERNEL_PARAMETERS)
        default = epilogues.pop("default", "")
        if _has_parameters(default, "DefaultGemm2DEpilogueProblem", _DEFAULT_EPILOGUE_PARAMETERS):
            epilogues["default"] = default
    return GemmHeaders(
        common=headers,
        has_kernel=has_kernel,
        epilogues=frozenset(epilogues),
        interwave=frozenset(name for name, text in pipelines.items() if _INTERWAVE in text),
        persistent=frozenset(name for name, text in pipelines.items() if _PERSISTENT.search(text)),
        warp_gemms=warp_gemms(headers),
        incomplete=frozenset(
            name for name in TABLE_PIPELINES if is_current and _is_incomplete(pipelines[name], kernel)
        ),
        along_k=frozenset(loop for name, text in pipelines.items() for loop in _along_k(name, text)),
        transposes_all=_TRANSPOSES_ALL in headers.text(_TRANSPOSE),
        transposing=transposing_warp_gemms(headers) if _LOADS_TRANSPOSED in headers.text(_POLICY) else None,
        races_between_tiles=not is_current and _BARRIER_BETWEEN_TILES not in kernel,
        pads_added_rows=_PADS_ADDED_ROWS in kernel,
    )


def _has_parameters(text: str, name: str, wanted: tuple[str, ...]) -> bool:
    return template_parameters(text, name)[: len(wanted)] == wanted


def _is_incomplete(pipeline: str, kernel: str) -> bool:
    lacks = (needed in kernel and not has.search(pipeline) for needed, has in _NEEDED.items())
    return bool(pipeline) and (_LOOP_FROM_PROBLEM in pipeline or any(lacks))


def _along_k(name: str, text: str) -> Iterator[tuple[str, Scheduler]]:
    intrawave, _, interwave = text.partition(_INTERWAVE)
    for scheduler, part in ((Scheduler.INTRAWAVE, intrawave), (Scheduler.INTERWAVE, interwave)):
        if any(step in part for step in _STEPS_ALONG_K):
            yield name, scheduler


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
    return reasons or [reason for check in further for reason in check(kernel, arch)]


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
