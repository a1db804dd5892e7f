"""What CK Tile's headers, or our templates for them, lack for a GEMM kernel, or compute wrongly."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.bench.codegen.interfaces import Interface
from ckh.kernels.pipelines import wave_group_reason, wave_groups_of
from ckh.kernels.scheduler import Scheduler
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, contiguous_axes
from ckh.ops.gemm_universal.vectors import native_widths
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import Triple
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
# The pipelines that our templates have.
_EMITTED = {
    Interface.MID_2025: frozenset({"basic_v1", "mem", "compv3", "compv4", "compv5"}),
    Interface.LATE_2025: frozenset(),
    Interface.CURRENT: frozenset({"basic_v1", "mem", "compv3", "compv4", "compv6"}),
}
# Why those are not emitted that the current interface has beside these.
_NOT_EMITTED = {
    "compv5": "the epilogues of {which} have no second group of waves, which compv5 needs",
    "preshufflev2": "preshufflev2 of {which} takes a B that is stored in an order of its own, which ours is not",
}
_FP32_SIDES = (16, 32)  # of the instructions of mid2025_fp32.hpp, whose K is a multiple of 64 / side
_WAVEFRONT = 64
# Bytes of an element -> the side of the squares that they are transposed in. (Squares of two 8-bit elements are there,
# but come out wrong.)
_TRANSPOSED_BYTES = {1: 4, 2: 2}
# Of mid-2025. It has no scheduler: what its name says of one makes no difference.
_UNSCHEDULED = "basic_v1"
# Of mid-2025. These step along the rows of A and the columns of B whatever the layout.
_STEP_ALONG_K_ONLY = frozenset({"basic_v1", "compv5"})
_PACK_BYTES = 16  # of a row that compv6 takes from LDS at once; it multiplies its tile once for each


def missing(kernel: GemmKernel, headers: GemmHeaders) -> list[str]:
    """Everything that the headers, or our templates for them, lack for a kernel; empty if they can build it."""
    which = f"the CK Tile headers ({headers.common.interface})"
    if not headers.has_kernel:
        return [f"{which} have no universal GEMM kernel"]
    if not kernel.is_complete:
        return ["the kernel leaves parameters out: only complete kernels can be built"]
    rules = (_missing_pipeline, _missing_parts, _missing_options, _missing_waves, _missing_vectors)
    return [reason.format(which=which) for rule in rules for reason in rule(kernel, headers)]


def _missing_pipeline(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    pipeline = kernel.pipeline
    if headers.is_current and pipeline in _NOT_EMITTED:
        yield _NOT_EMITTED[pipeline]
    elif pipeline not in headers.common.pipelines:
        yield f"{{which}} have no pipeline {pipeline}"
    elif pipeline not in _EMITTED[headers.common.interface]:
        yield f"GEMM kernels with {pipeline} of {{which}} are not emitted"
    elif pipeline in headers.incomplete:
        yield f"{pipeline} of {{which}} lacks what their GEMM kernel asks it for"


def _missing_parts(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    """What the headers do not have at all."""
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
    """What a pipeline of theirs does not do, or not correctly."""
    pipeline = kernel.pipeline
    if pipeline not in _EMITTED[headers.common.interface]:
        return  # _missing_pipeline has said so
    is_interwave = kernel.scheduler is Scheduler.INTERWAVE
    is_unscheduled = pipeline == _UNSCHEDULED and not headers.is_current
    if is_interwave and pipeline not in headers.interwave and not is_unscheduled:
        yield f"{pipeline} of {{which}} is not interwave"
    if kernel.persistent and pipeline not in headers.persistent:
        yield f"{pipeline} of {{which}} has no persistent kernels"
    elif kernel.persistent and not headers.is_current:
        # No barrier stands between the tiles in the loop of UniversalGemmKernel; later trees have s_waitcnt_barrier.
        yield "persistent kernels of {which} race: they load a tile into LDS while waves still read the one before"
    if _steps_along_k(kernel, headers) and kernel.layout in GEMM_LAYOUTS and kernel.layout != "rcr":
        how = f"interwave {pipeline}" if headers.is_current and is_interwave else pipeline
        yield f"{how} of {{which}} reads wrong tiles of operands in which K is not contiguous"
    if pipeline == "compv6" and kernel.dtype in ELEMENTS and _row_bytes_of_thread(kernel) > _PACK_BYTES:
        yield f"compv6 of {{which}} multiplies a tile more than once if a thread has over {_PACK_BYTES} bytes of a row"


def _missing_waves(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    pipeline = kernel.pipeline
    if pipeline not in _EMITTED[headers.common.interface]:
        return  # _missing_pipeline has said so
    if wave_groups_of(pipeline):
        if reason := wave_group_reason(pipeline, kernel.wave):
            yield reason
    elif kernel.wave[2] != 1:
        yield f"{pipeline} of {{which}} has no waves along K"


def _missing_vectors(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    """Tiles that cannot be loaded, and vector widths that cannot be stated, or not without wrong results."""
    if kernel.layout in GEMM_LAYOUTS and kernel.dtype in ELEMENTS:
        a_axis, b_axis, _ = contiguous_axes(kernel.layout)
        native_a, native_b, _ = _native(kernel)
        yield from _missing_loads(kernel, headers, "A", ("m", a_axis), (kernel.vectors[0], native_a))
        yield from _missing_loads(kernel, headers, "B", ("n", b_axis), (kernel.vectors[1], native_b))
    if kernel.epilogue == "default" and kernel.vectors[2] not in {NATIVE_WIDTH, 1}:
        yield "the default epilogue of {which} stores single elements"


def _missing_loads(
    kernel: GemmKernel, headers: GemmHeaders, operand: str, axes: tuple[str, str], widths: tuple[int, int]
) -> Iterator[str]:
    """Of an operand with its axis beside K, the one that is contiguous, and the vector widths stated and native."""
    outer, contiguous = axes
    is_transposed = contiguous != "k"
    extent = getattr(kernel, f"tile_{contiguous}")
    lines = kernel.tile_k if is_transposed else getattr(kernel, f"tile_{outer}")
    if is_transposed and not headers.is_current and widths[0] not in {NATIVE_WIDTH, widths[1]}:
        yield f"{{which}} transpose {operand} with its native vector width {widths[1]} only, not {widths[0]}"
        return
    share = _share_of_thread(kernel, extent, lines, widths[0] or widths[1])
    if share is None:
        yield f"{{which}} cannot spread {lines} lines of {extent} elements of {operand} over a block's threads"
    elif is_transposed and 1 not in share and not headers.transposes_all:
        step = _TRANSPOSED_BYTES.get(int(DTYPE_BYTES[kernel.dtype]))
        if step is None or any(number % step for number in share):
            yield f"{{which}} cannot transpose {' x '.join(map(str, share))} elements of {operand} in {kernel.dtype}"


def _share_of_thread(kernel: GemmKernel, extent: int, lines: int, width: int) -> tuple[int, int] | None:
    """Vectors that a thread loads of a tile, and their width; None if they cannot be spread evenly over the waves.

    Source: CK Tile's encoding pattern of 2D tiles, thread-raked, as it was in mid-2025; later trees spread more.
    """
    waves = prod(kernel.wave)
    width = min(width, extent * lines // (waves * _WAVEFRONT))
    if width == 0 or extent % width or _WAVEFRONT % (extent // width):
        return None
    lines_at_once = _WAVEFRONT // (extent // width) * (waves // _wave_groups(kernel))
    return None if lines % lines_at_once else (lines // lines_at_once, width)


def _native(kernel: GemmKernel) -> Triple:
    """The widths that the tile gives; of an architecture only the size of its waves counts, which all of them share."""
    return native_widths(kernel, load_arch("gfx942"))


def _wave_groups(kernel: GemmKernel) -> int:
    needed = wave_groups_of(kernel.pipeline)
    return 1 if needed is None else needed.count


def _row_bytes_of_thread(kernel: GemmKernel) -> int:
    """Bytes of one row of A, or column of B, that a thread holds for one matrix instruction."""
    m, n, k = kernel.warp_tile
    return int(k * max(m, n) // _WAVEFRONT * DTYPE_BYTES[kernel.dtype])


def _steps_along_k(kernel: GemmKernel, headers: GemmHeaders) -> bool:
    if headers.is_current:
        return (kernel.pipeline, kernel.scheduler) in headers.along_k
    return kernel.pipeline in _STEP_ALONG_K_ONLY


def _has_warp_gemm(kernel: GemmKernel, headers: GemmHeaders) -> bool:
    m, n, k = kernel.warp_tile
    if kernel.dtype == "fp32" and not headers.is_current:
        return m == n and m in _FP32_SIDES and k % (_WAVEFRONT // m) == 0
    return (ELEMENTS[kernel.dtype], (m, n, k)) in headers.warp_gemms


def _by(sizes: Triple) -> str:
    return "x".join(map(str, sizes))
