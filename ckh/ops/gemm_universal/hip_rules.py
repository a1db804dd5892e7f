"""Rules for what CK Tile's headers, or our templates for them, lack for a GEMM kernel, or compute wrongly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.bench.codegen.interfaces import Interface
from ckh.bench.codegen.tile_loads import LDS_TRANSPOSES, TRANSPOSED_ACCESS_BYTES, share_of_thread
from ckh.kernels.pipelines import (
    LATE_PIPELINES,
    PACK_REPEATING_PIPELINES,
    TABLE_PIPELINES,
    wave_group_reason,
    wave_groups_of,
)
from ckh.kernels.scheduler import Scheduler
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, contiguous_axes
from ckh.ops.gemm_universal.vectors import native_widths
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.ops.gemm_universal.hip_headers import GemmHeaders
    from ckh.ops.gemm_universal.kernel import GemmKernel

ELEMENTS = {
    "fp16": "ck_tile::half_t",
    "bf16": "ck_tile::bf16_t",
    "fp32": "float",
    "fp8": "ck_tile::fp8_t",
    "bf8": "ck_tile::bf8_t",
    "int8": "ck_tile::int8_t",
}
# Why those are not emitted that an interface has beside these.
_ORDERED_B = {
    "preshufflev2": "preshufflev2 of {which} takes a B that is stored in an order of its own, which ours is not"
}
_NOT_EMITTED: dict[Interface, dict[str, str]] = {
    Interface.MID_2025: {},
    Interface.LATE_2025: _ORDERED_B,
    Interface.CURRENT: {
        **_ORDERED_B,
        "compv5": "the epilogues of {which} have no second group of waves, which compv5 needs",
    },
}
# The pipelines that our templates have.
EMITTED = {
    Interface.MID_2025: frozenset(TABLE_PIPELINES) - LATE_PIPELINES,
    Interface.LATE_2025: frozenset(TABLE_PIPELINES) | LATE_PIPELINES,
    Interface.CURRENT: frozenset(TABLE_PIPELINES) - _NOT_EMITTED[Interface.CURRENT].keys(),
}
_FP32_SIDES = (16, 32)  # of the instructions that ours for 2025 have, whose K is a multiple of 64 / side
_WAVEFRONT = 64
# Bytes of an element -> the side of the squares that they are transposed in. (Squares of two 8-bit elements are there,
# but come out wrong.)
_TRANSPOSED_BYTES = {1: 4, 2: 2}
# Of 2025. It has no scheduler: what its name says of one makes no difference.
_UNSCHEDULED = "basic_v1"
_PACK_BYTES = 16  # of a row that is taken from LDS at once


@dataclass(frozen=True, slots=True)
class _Target:
    """Headers and the architecture that they are compiled for."""

    headers: GemmHeaders
    arch: ArchSpec

    @property
    def wavefront(self) -> int:
        """Threads of a wave."""
        return self.arch.wavefront_size

    @property
    def transposes_in_lds(self) -> bool:
        """True if operands are transposed when they are taken from LDS, not before they are written there."""
        return self.headers.transposing is not None and self.arch.name == LDS_TRANSPOSES


def missing(kernel: GemmKernel, headers: GemmHeaders, arch: ArchSpec) -> list[str]:
    """Everything that the headers, or ours for them, lack for a kernel on an architecture; empty if they build it."""
    which = f"the CK Tile headers ({headers.common.interface})"
    if not headers.has_kernel:
        return [f"{which} have no universal GEMM kernel"]
    if not kernel.is_complete:
        return ["the kernel leaves parameters out: only complete kernels can be built"]
    rules = (_missing_pipeline, _missing_parts, _missing_options, _missing_waves)
    reasons = [reason for rule in rules for reason in rule(kernel, headers)]
    target = _Target(headers, arch)
    more = (_missing_layouts, _missing_vectors, _missing_transposition)
    reasons += [reason for rule in more for reason in rule(kernel, target)]
    return [reason.format(which=which) for reason in reasons]


def _missing_pipeline(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    pipeline = kernel.pipeline
    if reason := _NOT_EMITTED[headers.common.interface].get(pipeline):
        yield reason
    elif pipeline not in headers.common.pipelines:
        yield f"{{which}} have no pipeline {pipeline}"
    elif pipeline not in EMITTED[headers.common.interface]:
        yield f"GEMM kernels with {pipeline} of {{which}} are not emitted"
    elif pipeline in headers.incomplete:
        yield f"{pipeline} of {{which}} lacks what their GEMM kernel needs of it"


def _missing_parts(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    """Parts that the headers do not have at all."""
    if kernel.suffix:
        yield f"the suffix {kernel.suffix} of the name has no known meaning"
    if kernel.layout not in GEMM_LAYOUTS:
        yield f"layout {kernel.layout} is not one of {', '.join(GEMM_LAYOUTS)}"
    if kernel.epilogue not in headers.epilogues:
        yield f"{{which}} have no epilogue {kernel.epilogue}"
    if kernel.dtype not in ELEMENTS:
        yield f"dtype {kernel.dtype} is not one of {', '.join(ELEMENTS)}"
    elif not _has_warp_gemm(kernel, headers):
        yield f"{{which}} have no {_by(kernel.warp_tile)} matrix instruction for {kernel.dtype}"


def _missing_options(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    """Options that a pipeline of theirs does not have, or not correctly."""
    pipeline = kernel.pipeline
    if pipeline not in EMITTED[headers.common.interface]:
        return  # _missing_pipeline has said so
    is_interwave = kernel.scheduler is Scheduler.INTERWAVE
    is_unscheduled = pipeline == _UNSCHEDULED and not headers.is_current
    if is_interwave and pipeline not in headers.interwave and not is_unscheduled:
        yield f"{pipeline} of {{which}} is not interwave"
    if kernel.persistent and pipeline not in headers.persistent:
        yield f"{pipeline} of {{which}} has no persistent kernels"
    elif kernel.persistent and headers.races_between_tiles:
        yield "persistent kernels of {which} race: they load a tile into LDS while waves still read the one before"
    is_repeated = pipeline in PACK_REPEATING_PIPELINES and headers.is_current  # those of 2025 take a row at once
    if is_repeated and kernel.dtype in ELEMENTS and _row_bytes_of_thread(kernel) > _PACK_BYTES:
        most = f"{_PACK_BYTES} bytes of a row"
        yield f"{pipeline} of {{which}} multiplies a tile more than once if a thread has over {most}"


def _missing_layouts(kernel: GemmKernel, target: _Target) -> Iterator[str]:
    headers, pipeline = target.headers, kernel.pipeline
    if kernel.layout == "rcr" or kernel.layout not in GEMM_LAYOUTS or not _steps_along_k(kernel, headers):
        return
    # Ours of late 2025 steps along K in every layout, but knows nothing of operands that LDS transposes.
    if pipeline == _UNSCHEDULED and headers.common.interface is Interface.LATE_2025:
        if target.transposes_in_lds:
            yield f"{pipeline} of {{which}} does not take operands that {target.arch.name} transposes in LDS"
        return
    is_interwave = headers.is_current and kernel.scheduler is Scheduler.INTERWAVE
    how = f"interwave {pipeline}" if is_interwave else pipeline
    yield f"{how} of {{which}} reads wrong tiles of operands in which K is not contiguous"


def _missing_waves(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    pipeline = kernel.pipeline
    if pipeline not in EMITTED[headers.common.interface]:
        return  # _missing_pipeline has said so
    if wave_groups_of(pipeline):
        if reason := wave_group_reason(pipeline, kernel.wave):
            yield reason
    elif kernel.wave[2] != 1:
        yield f"{pipeline} of {{which}} has no waves along K"


def _missing_vectors(kernel: GemmKernel, target: _Target) -> Iterator[str]:
    """Tiles that cannot be loaded, and vector widths that cannot be stated, or not without wrong results."""
    if kernel.layout in GEMM_LAYOUTS and kernel.dtype in ELEMENTS:
        a_axis, b_axis, _ = contiguous_axes(kernel.layout)
        native_a, native_b, _ = native_widths(kernel, target.arch)
        yield from _missing_loads(kernel, target, "A", ("m", a_axis), (kernel.vectors[0], native_a))
        yield from _missing_loads(kernel, target, "B", ("n", b_axis), (kernel.vectors[1], native_b))
    if kernel.epilogue == "default" and kernel.vectors[2] not in {NATIVE_WIDTH, 1}:
        yield "the default epilogue of {which} stores single elements"


def _missing_loads(
    kernel: GemmKernel, target: _Target, operand: str, axes: tuple[str, str], widths: tuple[int, int]
) -> Iterator[str]:
    """Of an operand with its axis beside K, the one that is contiguous, and the vector widths stated and native."""
    outer, contiguous = axes
    is_transposed = contiguous != "k"
    extent = getattr(kernel, f"tile_{contiguous}")
    lines = kernel.tile_k if is_transposed else getattr(kernel, f"tile_{outer}")
    is_native_only = target.headers.common.interface is Interface.MID_2025
    if is_transposed and is_native_only and widths[0] not in {NATIVE_WIDTH, widths[1]}:
        yield f"{{which}} transpose {operand} with its native vector width {widths[1]} only, not {widths[0]}"
        return
    width = widths[0] or widths[1]
    share = share_of_thread(target.arch, kernel.wave, lines, extent, width, _wave_groups(kernel))
    if share is None:
        yield f"{{which}} cannot spread {lines} lines of {extent} elements of {operand} over a block's threads"
    elif is_transposed and not (target.transposes_in_lds or _transposes(kernel, target.headers, share)):
        yield f"{{which}} cannot transpose {' x '.join(map(str, share))} elements of {operand} in {kernel.dtype}"


def _transposes(kernel: GemmKernel, headers: GemmHeaders, share: tuple[int, int]) -> bool:
    """True if the share of a thread can be transposed in registers."""
    step = _TRANSPOSED_BYTES.get(int(DTYPE_BYTES[kernel.dtype]))
    is_square = step is not None and not any(number % step for number in share)
    return 1 in share or headers.transposes_all or is_square


def _missing_transposition(kernel: GemmKernel, target: _Target) -> Iterator[str]:
    """Operands that gfx950's LDS cannot transpose for a matrix instruction."""
    known, arch = target.headers.transposing, target.arch
    is_transposed = kernel.layout in GEMM_LAYOUTS and kernel.layout != "rcr"
    if known is None or not target.transposes_in_lds or not is_transposed or kernel.dtype not in ELEMENTS:
        return
    _, n, k = kernel.warp_tile
    accesses = n * k * DTYPE_BYTES[kernel.dtype] / target.wavefront / TRANSPOSED_ACCESS_BYTES
    if (ELEMENTS[kernel.dtype], kernel.warp_tile, accesses) not in known:
        yield (
            f"{{which}} have no {_by(kernel.warp_tile)} matrix instruction for {kernel.dtype} "
            f"whose operands {arch.name} transposes in LDS"
        )


def _wave_groups(kernel: GemmKernel) -> int:
    needed = wave_groups_of(kernel.pipeline)
    return 1 if needed is None else needed.count


def _row_bytes_of_thread(kernel: GemmKernel) -> int:
    """Bytes of one row of A, or column of B, that a thread holds for one matrix instruction."""
    m, n, k = kernel.warp_tile
    return int(k * max(m, n) // _WAVEFRONT * DTYPE_BYTES[kernel.dtype])


def _steps_along_k(kernel: GemmKernel, headers: GemmHeaders) -> bool:
    scheduler = Scheduler.INTRAWAVE if kernel.pipeline == _UNSCHEDULED and not headers.is_current else kernel.scheduler
    return (kernel.pipeline, scheduler) in headers.along_k


def _has_warp_gemm(kernel: GemmKernel, headers: GemmHeaders) -> bool:
    m, n, k = kernel.warp_tile
    if kernel.dtype == "fp32" and not headers.is_current:
        return m == n and m in _FP32_SIDES and k % (_WAVEFRONT // m) == 0
    return (ELEMENTS[kernel.dtype], (m, n, k)) in headers.warp_gemms


def _by(sizes: Triple) -> str:
    return "x".join(map(str, sizes))
