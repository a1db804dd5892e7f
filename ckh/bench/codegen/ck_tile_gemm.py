"""The `hip` device: a GEMM kernel as one CK Tile translation unit, for headers of mid-2025.

What these headers lack, or compute wrongly, is refused with the reason, never replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.bench.codegen.ck_tile import LABEL, Interface
from ckh.bench.codegen.unsupported import UnsupportedKernelError
from ckh.kernels.config import Scheduler
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.names import kernel_name
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, contiguous_axes, output_dtype
from ckh.ops.gemm_universal.vectors import native_widths
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import Triple
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.ops.gemm_universal.kernel import GemmKernel

_GEMM = Path("ck_tile/ops/gemm")
_KERNEL = _GEMM / "kernel/universal_gemm_kernel.hpp"
_WARP_GEMMS = _GEMM / "warp/warp_gemm_dispatcher.hpp"
# Pipeline -> the header that tells what it has.
_PIPELINES = {
    "basic_v1": _GEMM / "pipeline/gemm_pipeline_agmem_bgmem_creg_v1.hpp",
    "mem": _GEMM / "pipeline/gemm_pipeline_ag_bg_cr_mem.hpp",
    "compv3": _GEMM / "pipeline/gemm_pipeline_ag_bg_cr_comp_v3.hpp",
    "compv4": _GEMM / "pipeline/gemm_pipeline_ag_bg_cr_comp_v4.hpp",
    "compv5": _GEMM / "pipeline/gemm_pipeline_ag_bg_cr_comp_v5.hpp",
}
# Epilogue -> its header, and its name in our headers.
_EPILOGUES = {
    "cshuffle": (Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp"), "cshuffle"),
    "default": (Path("ck_tile/ops/epilogue/default_2d_epilogue.hpp"), "direct"),
}
# How a pipeline's header says what it has.
_INTERWAVE = "PipelineImpl<GemmPipelineScheduler::Interwave>"
_PERSISTENT = "UsePersistentKernel"
_WARP_GEMM = re.compile(
    r"WarpGemmMfmaDispatcher<ck_tile::(\w+), ck_tile::\1, (?:ck_tile::)?\w+,\s*(\d+),\s*(\d+),\s*(\d+),\s*false>"
)

ELEMENTS = {
    "fp16": "ck_tile::half_t",
    "bf16": "ck_tile::bf16_t",
    "fp32": "float",
    "fp8": "ck_tile::fp8_t",
    "bf8": "ck_tile::bf8_t",
    "int8": "ck_tile::int8_t",
}
_OUTPUTS = {**ELEMENTS, "int32": "ck_tile::int32_t"}
_LETTERS = {"r": "RowMajor", "c": "ColumnMajor"}
_FP32_SIDES = (16, 32)  # of the instructions of mid2025_fp32.hpp, whose K is a multiple of 64 / side
_WAVEFRONT = 64
# Bytes of an element -> the side of the squares that they are transposed in. (Squares of two 8-bit elements are there,
# but come out wrong.)
_TRANSPOSED_BYTES = {1: 4, 2: 2}
# It has no scheduler: what its name says of one makes no difference.
_UNSCHEDULED = "basic_v1"
# These step along the rows of A and the columns of B whatever the layout.
_STEP_ALONG_K_ONLY = frozenset({"basic_v1", "compv5"})
_COMPV5_WAVES = (1, 1, 2)  # two waves that load and compute in turn; with any others it computes something else

_LABEL_BYTES = 512
_INTEGERS = (
    *("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k", "warp_tile_m", "warp_tile_n", "warp_tile_k"),
    *("vector_a", "vector_b", "vector_c"),
)
_BOOLEANS = ("pad_m", "pad_n", "pad_k", "persistent")


@dataclass(frozen=True, slots=True)
class GemmHeaders:
    """What CK Tile's headers have for GEMM kernels.

    Attributes:
        common: what they have for all kernels.
        has_kernel: whether the universal GEMM kernel is there.
        epilogues: those that are there.
        interwave: the pipelines that have this scheduler.
        persistent: the pipelines that have persistent kernels.
        warp_gemms: CK Tile's element type of A and B, and the tile, of every matrix instruction.
    """

    common: Headers
    has_kernel: bool
    epilogues: frozenset[str]
    interwave: frozenset[str]
    persistent: frozenset[str]
    warp_gemms: frozenset[tuple[str, Triple]]


def detect_gemm(headers: Headers) -> GemmHeaders:
    """What headers have for GEMM kernels; what cannot be read is not there."""
    pipelines = {name: _text(headers, path) for name, path in _PIPELINES.items()}
    found = (match.groups() for match in _WARP_GEMM.finditer(_text(headers, _WARP_GEMMS)))
    return GemmHeaders(
        common=headers,
        has_kernel=bool(_text(headers, _KERNEL)),
        epilogues=frozenset(name for name, (path, _) in _EPILOGUES.items() if _text(headers, path)),
        interwave=frozenset(name for name, text in pipelines.items() if _INTERWAVE in text),
        persistent=frozenset(name for name, text in pipelines.items() if _PERSISTENT in text),
        warp_gemms=frozenset((f"ck_tile::{element}", (int(m), int(n), int(k))) for element, m, n, k in found),
    )


def _text(headers: Headers, path: Path) -> str:
    try:
        return (headers.include / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def emit(kernel: GemmKernel, headers: GemmHeaders) -> str:
    """The C++ source of one kernel.

    Raises:
        UnsupportedKernelError: these headers cannot build it; says why.
    """
    reasons = missing(kernel, headers)
    if reasons:
        raise UnsupportedKernelError("; ".join(reasons))
    assert kernel.epilogue is not None
    values = {
        **{f"bool {name}": str(bool(getattr(kernel, name))).lower() for name in _BOOLEANS},
        "bool double_smem_buffer": str(kernel.pipeline in headers.common.double_buffered).lower(),
        "Pipeline pipeline": f"Pipeline::{kernel.pipeline}",
        "Epilogue epilogue": f"Epilogue::{_EPILOGUES[kernel.epilogue][1]}",
        "auto scheduler": f"ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()}",
    }
    lines = [
        f'inline constexpr char label[{_LABEL_BYTES}] = "{LABEL}{kernel_name(kernel)}";',
        f"using Element = {ELEMENTS[kernel.dtype]};",
        f"using Accumulator = {'ck_tile::int32_t' if kernel.dtype == 'int8' else 'float'};",
        f"using Output = {_OUTPUTS[output_dtype(kernel.dtype)]};",
        f"using ALayout = {_LETTERS[kernel.layout[0]]};",
        f"using BLayout = {_LETTERS[kernel.layout[1]]};",
        *(f"inline constexpr ck_tile::index_t {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr {name} = {value};" for name, value in values.items()),
    ]
    head = '#include "gemm_vocabulary.hpp"\n\nnamespace ckh::kernel {\n'
    tail = '\n}  // namespace ckh::kernel\n\n#include "gemm_abi.hpp"\n'
    return "\n".join((head, *lines, tail))


def missing(kernel: GemmKernel, headers: GemmHeaders) -> list[str]:
    """Everything that the headers, or our templates for them, lack for a kernel; empty if they can build it."""
    which = f"the CK Tile headers ({headers.common.interface})"
    if headers.common.interface is not Interface.MID_2025:
        return [f"GEMM kernels are emitted for headers of {Interface.MID_2025} only, not for {which}"]
    if not headers.has_kernel:
        return [f"{which} have no universal GEMM kernel"]
    if not kernel.is_complete:
        return ["the kernel leaves parameters out: only complete kernels can be built"]
    rules = (_missing_parts, _missing_options, _missing_vectors)
    return [reason.format(which=which) for rule in rules for reason in rule(kernel, headers)]


def _missing_parts(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    """What the headers do not have at all."""
    if kernel.suffix:
        yield f"the suffix {kernel.suffix} of the name has no known meaning"
    if kernel.layout not in GEMM_LAYOUTS:
        yield f"layout {kernel.layout} is not one of {', '.join(GEMM_LAYOUTS)}"
    if kernel.pipeline not in _PIPELINES or kernel.pipeline not in headers.common.pipelines:
        yield f"{{which}} have no pipeline {kernel.pipeline}"
    if kernel.epilogue not in headers.epilogues:
        yield f"{{which}} have no epilogue {kernel.epilogue}"
    if kernel.dtype not in ELEMENTS:
        yield f"dtype {kernel.dtype} is not one of {', '.join(ELEMENTS)}"
    elif not _has_warp_gemm(kernel, headers):
        yield f"{{which}} have no {_by(kernel.warp_tile)} matrix instruction for {kernel.dtype}"


def _missing_options(kernel: GemmKernel, headers: GemmHeaders) -> Iterator[str]:
    """What a pipeline of theirs does not do, or not correctly."""
    pipeline = kernel.pipeline
    if pipeline not in _PIPELINES:
        return  # _missing_parts has said so
    is_interwave = kernel.scheduler is Scheduler.INTERWAVE
    if is_interwave and pipeline not in headers.interwave and pipeline != _UNSCHEDULED:
        yield f"{pipeline} of {{which}} is not interwave"
    if kernel.persistent and pipeline not in headers.persistent:
        yield f"{pipeline} of {{which}} has no persistent kernels"
    if pipeline in _STEP_ALONG_K_ONLY and kernel.layout in GEMM_LAYOUTS and kernel.layout != "rcr":
        yield f"{pipeline} of {{which}} reads wrong tiles of operands in which K is not contiguous"
    if pipeline == "compv5" and kernel.wave != _COMPV5_WAVES:
        yield f"compv5 of {{which}} is correct with {_by(_COMPV5_WAVES)} waves only"
    elif pipeline != "compv5" and kernel.wave[2] != 1:
        yield f"{pipeline} of {{which}} has no waves along K"


def _missing_vectors(kernel: GemmKernel, _headers: GemmHeaders) -> Iterator[str]:
    """Tiles that cannot be loaded, and vector widths that cannot be stated, or not without wrong results."""
    if kernel.layout in GEMM_LAYOUTS and kernel.dtype in ELEMENTS:
        a_axis, b_axis, _ = contiguous_axes(kernel.layout)
        yield from _missing_loads(kernel, "A", ("m", a_axis), (kernel.vectors[0], _native(kernel)[0]))
        yield from _missing_loads(kernel, "B", ("n", b_axis), (kernel.vectors[1], _native(kernel)[1]))
    if kernel.epilogue == "default" and kernel.vectors[2] not in {NATIVE_WIDTH, 1}:
        yield "the default epilogue of {which} stores single elements"


def _missing_loads(kernel: GemmKernel, operand: str, axes: tuple[str, str], widths: tuple[int, int]) -> Iterator[str]:
    """Of an operand with its axis beside K, the one that is contiguous, and the vector widths stated and native."""
    outer, contiguous = axes
    is_transposed = contiguous != "k"
    extent = getattr(kernel, f"tile_{contiguous}")
    lines = kernel.tile_k if is_transposed else getattr(kernel, f"tile_{outer}")
    if is_transposed and widths[0] not in {NATIVE_WIDTH, widths[1]}:
        yield f"{{which}} transpose {operand} with its native vector width {widths[1]} only, not {widths[0]}"
        return
    share = _share_of_thread(kernel, extent, lines, widths[0] or widths[1])
    if share is None:
        yield f"{{which}} cannot spread {lines} lines of {extent} elements of {operand} over a block's threads"
    elif is_transposed and 1 not in share:
        step = _TRANSPOSED_BYTES.get(int(DTYPE_BYTES[kernel.dtype]))
        if step is None or any(number % step for number in share):
            yield f"{{which}} cannot transpose {' x '.join(map(str, share))} elements of {operand} in {kernel.dtype}"


def _share_of_thread(kernel: GemmKernel, extent: int, lines: int, width: int) -> tuple[int, int] | None:
    """Vectors that a thread loads of a tile, and their width; None if they cannot be spread evenly over the waves.

    Source: CK Tile's `TileDistributionEncodingPattern2D`, thread-raked.
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
    return 2 if kernel.pipeline == "compv5" else 1


def _has_warp_gemm(kernel: GemmKernel, headers: GemmHeaders) -> bool:
    m, n, k = kernel.warp_tile
    if kernel.dtype == "fp32":
        return m == n and m in _FP32_SIDES and k % (_WAVEFRONT // m) == 0
    return (ELEMENTS[kernel.dtype], (m, n, k)) in headers.warp_gemms


def _by(sizes: Triple) -> str:
    return "x".join(map(str, sizes))
