"""Rules of GEMM kernels: of an architecture, and to support a problem.

Nothing is corrected: an invalid combination is rejected with all of its reasons.

Source of an architecture's rules: AMD's ArchFilter and the tables of its architecture specs. Source of a problem's: the
support check of CK Tile's universal GEMM kernel (`IsSupportedArgument`), which requires padding and whole vectors along
the contiguous axes of A, B and C. It holds for every pipeline: AMD's builders and ckh pad as the name states. Only
AMD's data convert `mem` to padded (`features.kernel_columns`). Source of the native vector widths: CK Tile's GEMM
policies, as restated in AMD's `feature_engine_vec`.
A kernel for the host has no code for the remainder of an unpadded axis, contiguous or not.
"""

from __future__ import annotations

from math import gcd, prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.kernels.declaration import by
from ckh.kernels.judging import Rule, RuleBook, Rules, divides, has_pipeline, has_waves, operator_tile, runs_dtype
from ckh.kernels.pipelines import READS_BEYOND, end_alike, loop_of, wave_group_reason
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, contiguous_axes, output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.pipelines import Scheduler
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.gemm_universal.problem import GemmProblem

BOOK = RuleBook()
rule = BOOK.rule


@rule
def _suffix(suffix: str) -> Iterator[str]:
    if suffix:
        yield f"the suffix {suffix} of the name has no known meaning"


@rule
def _layout(layout: str | None) -> Iterator[str]:
    if layout not in GEMM_LAYOUTS:
        yield f"unknown layout {layout} (there are {', '.join(GEMM_LAYOUTS)})"


@rule
def _traits(arch: ArchSpec, epilogue: str | None, pipeline: str, scheduler: Scheduler) -> Iterator[str]:
    """Reject unsupported traits; without an epilogue, only what no epilogue supports is rejected."""
    epilogues = arch.epilogues if epilogue is None else (epilogue,)
    if all(arch.is_trait_unsupported(pipeline, name, str(scheduler)) for name in epilogues):
        yield f"{pipeline}, {' or '.join(epilogues)} and {scheduler} do not work together"


@rule
def _lds(arch: ArchSpec, pipeline: str, dtype: str, tile_m: int, tile_n: int, tile_k: int) -> Iterator[str]:
    if pipeline not in arch.common.pipeline_lds or dtype not in DTYPE_BYTES:
        return
    used = int((tile_m + tile_n) * tile_k * DTYPE_BYTES[dtype])
    budget = arch.lds_budget(pipeline)
    if used > budget:
        yield f"the tiles of A and B take {used} bytes of LDS, {pipeline} has {budget} on {arch.name}"


@rule
def _operator_tile(arch: ArchSpec, pipeline: str, tile: Triple) -> Iterator[str]:
    operator = "gemm_preshuffle" if _is_preshuffled(pipeline, arch) else "gemm"
    yield from operator_tile(arch, operator, tile)


@rule
def _epilogue(arch: ArchSpec, epilogue: str | None) -> Iterator[str]:
    if epilogue not in arch.epilogues:
        yield f"{arch.name} does not have the epilogue {epilogue}"


@rule
def _persistent(arch: ArchSpec, persistent: bool | None) -> Iterator[str]:
    if persistent and not arch.is_gpu:
        yield f"{arch.name} has no persistent kernels"


@rule
def _computing_wave_groups(arch: ArchSpec, pipeline: str, wave: Triple) -> Iterator[str]:
    """GEMM kernels are emitted with as many wave groups as their pipeline requires."""
    if arch.is_gpu and (reason := wave_group_reason(pipeline, wave)):
        yield reason


@rule
def _warp_tile(arch: ArchSpec, dtype: str, pipeline: str, warp_tile: Triple) -> Iterator[str]:
    if dtype not in arch.dtypes:
        return  # rejected by runs_dtype
    known = arch.warp_tiles_for(dtype, preshuffle=_is_preshuffled(pipeline, arch))
    if not known:
        yield f"{arch.name} has no matrix instructions for {dtype} with {pipeline}"
    elif warp_tile not in known:
        has = ", ".join(map(by, known))
        yield f"{arch.name} has no {by(warp_tile)} warp tile for {dtype} (it has {has})"


@rule
def _vectors(arch: ArchSpec, dtype: str, vectors: Triple) -> Iterator[str]:
    dtypes = (dtype, dtype, output_dtype(dtype))
    for operand, width, stored in zip("abc", vectors, dtypes, strict=True):
        most = int(MAX_VECTOR_BYTES / DTYPE_BYTES.get(stored, MAX_VECTOR_BYTES))
        if width != NATIVE_WIDTH and not arch.is_gpu:
            yield f"{arch.name} has no fixed vector widths, vector_{operand} must be {NATIVE_WIDTH}, not {width}"
        elif width != NATIVE_WIDTH and (width < 1 or most % width):
            yield f"vector_{operand} must be {NATIVE_WIDTH} (native) or a divisor of {most}, not {width}"


def _is_preshuffled(pipeline: str, arch: ArchSpec) -> bool:
    return pipeline in arch.common.preshuffle_pipelines


# Rules on parameters that even the shortest name has.
NAME_RULES: tuple[Rule, ...] = (
    _suffix,
    runs_dtype,
    _layout,
    has_pipeline,
    _traits,
    _lds,
    _operator_tile,
)

# Of these, the rules of kernels whose pipelines the specifications list apart from the others.
RULES_OF_ANY_PIPELINE = tuple(name_rule for name_rule in NAME_RULES if name_rule is not has_pipeline)

# Rules on parameters that only a complete kernel has.
COMPLETE_RULES: tuple[Rule, ...] = (
    _epilogue,
    _persistent,
    has_waves,
    _computing_wave_groups,
    _warp_tile,
    *map(divides, "mnk"),
    _vectors,
)


MAX_VECTOR_BYTES = 16
LOAD_BYTES = (16, 8, 4, 2)
# Loads narrower than this many bytes are only tried as single elements.
NARROW = 8


class Loads(NamedTuple):
    """Facts that the vector widths of a complete kernel depend on."""

    dtype: str
    layout: str
    tile: Triple
    wave: Triple
    warp_tile: Triple
    epilogue: str
    vectors: Triple


def native_widths(kernel: GemmKernel | Loads, arch: ArchSpec) -> Triple:
    """Return the native vector widths, in elements, of A, B and C for the tile of a complete kernel."""
    stored = store_width(kernel.epilogue, kernel.dtype, kernel.wave[1], kernel.warp_tile[1])
    return (*load_widths(kernel.dtype, kernel.layout, kernel.tile, kernel.wave, arch), stored)


def load_widths(dtype: str, layout: str, tile: Triple, wave: Triple, arch: ArchSpec) -> tuple[int, int]:
    """Return the native vector widths of loads of A and B, in elements."""
    a_axis, b_axis, _ = contiguous_axes(layout)
    m, n, k = tile
    threads = prod(wave) * arch.wavefront_size
    return (
        _load_width(dtype, m * k // threads, m if a_axis == "m" else k),
        _load_width(dtype, n * k // threads, n if b_axis == "n" else k),
    )


def effective_widths(kernel: GemmKernel | Loads, arch: ArchSpec) -> Triple:
    """Return the widths that the kernel uses: the stated ones, else the native ones."""
    a, b, c = (
        native if own == NATIVE_WIDTH else own
        for own, native in zip(kernel.vectors, native_widths(kernel, arch), strict=True)
    )
    return a, b, c


def _load_width(dtype: str, per_thread: int, extent: int) -> int:
    """Return the widest load that divides the tile's contiguous extent and the number of elements per thread."""
    element = DTYPE_BYTES[dtype]
    for size in LOAD_BYTES:
        width = int(size / element)
        if (size >= NARROW or element >= size) and width and extent % width == 0 and per_thread % width == 0:
            return width
    return 1


def store_width(epilogue: str | None, dtype: str, wave_n: int, warp_tile_n: int) -> int:
    """Return the store width of C: every layout here has a row-major C, which only the cshuffle epilogue vectorizes."""
    if epilogue != "cshuffle":
        return 1
    return min(warp_tile_n * wave_n, int(MAX_VECTOR_BYTES / DTYPE_BYTES[output_dtype(dtype)]))


_HALF = frozenset({"fp16", "bf16"})
MAX_OFFSET = 2**31 - 1
_MAX_PARTS = 2**16 - 1
_MAXLOAD_BYTES = 2**32 - 1
# Tiles beyond the last line that loads of A and B and stores of C reach.
_TILES_BEYOND = (3, 3, 1)


@rule
def _same_kind(problem: GemmProblem, dtype: str, layout: str | None) -> Iterator[str]:
    if dtype != problem.dtype:
        yield f"a kernel of {dtype} cannot run a problem of {problem.dtype}"
    if layout != problem.layout:
        yield f"a kernel of layout {layout} cannot run a problem of layout {problem.layout}"


@rule
def _padding(
    arch: ArchSpec, problem: GemmProblem, tile: Triple, pads: tuple[bool | None, bool | None, bool | None]
) -> Iterator[str]:
    axes = contiguous_axes(problem.layout) if arch.is_gpu else tuple("mnk")
    for axis, size, padded in zip("mnk", tile, pads, strict=True):
        step = size * problem.split_k if axis == "k" else size
        if padded is False and axis in axes and problem.size(axis) % step:
            parts = f" x split_k {problem.split_k}" if step != size else ""
            yield f"{axis.upper()} = {problem.size(axis)} is not a multiple of tile_{axis} {size}{parts}, nor padded"


@BOOK.quantity
def widths(
    arch: ArchSpec,
    is_complete: bool,
    dtype: str,
    layout: str,
    tile: Triple,
    wave: Triple,
    warp_tile: Triple,
    epilogue: str,
    vectors: Triple,
) -> Triple | None:
    """Return the vector widths of a complete GPU kernel; None where they do not matter."""
    if not arch.is_gpu or not is_complete:
        return None
    return effective_widths(Loads(dtype, layout, tile, wave, warp_tile, epilogue, vectors), arch)


@rule
def _whole_vectors(arch: ArchSpec, problem: GemmProblem, widths: Triple | None) -> Iterator[str]:
    if widths is None or not arch.vector_divisibility:
        return
    for operand, width, axis in zip("abc", widths, contiguous_axes(problem.layout), strict=True):
        if problem.size(axis) % width:
            yield f"{axis.upper()} = {problem.size(axis)} is not a multiple of vector_{operand} = {width}"


@rule
def _split_k(
    arch: ArchSpec, problem: GemmProblem, is_complete: bool, dtype: str, warp_tile_k: int, widths: Triple
) -> Iterator[str]:
    if problem.split_k == 1:
        return
    if not arch.is_gpu:
        yield f"{arch.name} does not split K"
    elif problem.split_k > _MAX_PARTS:
        yield f"split_k {problem.split_k} exceeds the {_MAX_PARTS} blocks of a grid along its third axis"
    elif is_complete:
        # All parts but the last are equal, in whole warp tiles.
        part = -(-problem.k // (problem.split_k * warp_tile_k)) * warp_tile_k
        if part * (problem.split_k - 1) >= problem.k:
            yield f"K = {problem.k} in {problem.split_k} parts of {part} leaves nothing for the last"
        if output_dtype(dtype) in _HALF and widths[2] % 2:
            yield f"split_k {problem.split_k} needs an even vector_c for {output_dtype(dtype)} results"


@rule
def _rows_of_c(arch: ArchSpec, problem: GemmProblem, dtype: str, tile_m: int) -> Iterator[str]:
    """Additions of bf16 are plain global atomics in CK Tile's headers of 2025, which nothing stops at the end of C."""
    if arch.is_gpu and problem.split_k > 1 and output_dtype(dtype) == "bf16" and problem.size("m") % tile_m:
        yield f"M = {problem.size('m')} is not a multiple of tile_m {tile_m}: CK Tile of 2025 adds bf16 beyond C"


@BOOK.quantity
def looping(
    arch: ArchSpec, is_complete: bool, pipeline: str, dtype: str, tile: Triple, wave: Triple, warp_tile_k: int
) -> tuple[tuple[int, int], int, int] | None:
    """Return the main loop of a complete GPU kernel (`pipelines.loop_of`), tile K and K of an instruction."""
    if not arch.is_gpu or not is_complete:
        return None
    return loop_of(pipeline, tile, prod(wave), dtype), tile[2], warp_tile_k


@rule
def _parts_alike(problem: GemmProblem, looping: tuple[tuple[int, int], int, int] | None) -> Iterator[str]:
    if problem.split_k == 1 or looping is None:
        return
    loop, tile_k, step = looping
    part = -(-problem.k // (problem.split_k * step)) * step
    last = problem.k - part * (problem.split_k - 1)
    if last > 0 and not end_alike(loop, -(-part // tile_k), -(-last // tile_k)):
        yield f"parts of K of {part}, the last of {last}, end unlike in tiles of {tile_k}"


@BOOK.quantity
def overrunning(arch: ArchSpec, pipeline: str, pad_k: bool | None, tile_k: int) -> tuple[tuple[int, ...], int]:
    """Return the numbers of tiles along K for which an unpadded GPU kernel of 2025 reads beyond K, and tile K."""
    trips = READS_BEYOND.get(pipeline, ()) if arch.is_gpu and pad_k is False else ()
    return (trips, tile_k) if trips else ((), 0)


@rule
def _overrun(problem: GemmProblem, overrunning: tuple[tuple[int, ...], int]) -> Iterator[str]:
    """Beyond a K that is contiguous in A and B the next lines begin; otherwise one operand has zeros there."""
    if problem.layout != "rcr":
        return
    trips, tile_k = overrunning
    for trip in trips:
        if problem.k == trip * tile_k * problem.split_k:
            what = f"{trip} x tile_k {tile_k}"
            yield f"K = {problem.k} in {problem.split_k} parts is {what}: CK Tile of 2025 reads beyond"


@rule
def _addressable(arch: ArchSpec, problem: GemmProblem, tile: Triple) -> Iterator[str]:
    if not arch.is_gpu:
        return
    for name, lines, reached, distance, most in _extents(problem, tile):
        if reached * distance > most:
            beyond = f"{reached * distance} with the tiles beyond"
            yield f"{name} has {lines * distance} elements, {beyond}; CK Tile's offsets reach {most}"


def _extents(problem: GemmProblem, tile: Triple) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield each matrix, its lines, those that a kernel reaches, their distance, and the limit of CK Tile's offsets.

    Offsets of loads count elements and bytes, of stores bytes with a sign.
    """
    most_loaded = min(MAX_OFFSET, int(_MAXLOAD_BYTES // DTYPE_BYTES[problem.dtype]))
    most_stored = int(MAX_OFFSET // DTYPE_BYTES[output_dtype(problem.dtype)])
    size = dict(zip("mnk", tile, strict=True))
    for (name, axis, beyond, most), (lines, _), distance in zip(
        zip("ABC", _line_axes(problem.layout), _TILES_BEYOND, (most_loaded, most_loaded, most_stored), strict=True),
        problem.lines,
        problem.leading,
        strict=True,
    ):
        yield name, lines, lines + beyond * size[axis], distance, most


def _line_axes(layout: str) -> tuple[str, str, str]:
    """Return the axes that count the contiguous lines of A, B and C."""
    return "m" if layout[0] == "r" else "k", "k" if layout[1] == "r" else "n", "m"


PROBLEM_RULES: tuple[Rule, ...] = (
    _same_kind,
    _padding,
    _whole_vectors,
    _split_k,
    _rows_of_c,
    _parts_alike,
    _overrun,
    _addressable,
)

# Multiple of every tile and vector width, of pools, of measured kernels and of kernels that a user names.
_MOST_DIVISOR = 2**10 * 3**2 * 5 * 7 * 11 * 13


# At most the tiles of kernels that a user names, and a K whose exact value rules read.
_MOST_TILE, _SHORT_K = 2**11, 2**13


def rule_key(problem: GemmProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    m, n = (gcd(problem.size(axis), _MOST_DIVISOR) for axis in "mn")
    k = gcd(problem.k, _MOST_DIVISOR) if problem.split_k == 1 and problem.k > _SHORT_K else problem.k
    extents = _extents(problem, (_MOST_TILE,) * 3)
    far = tuple((lines, distance) for _, lines, reached, distance, most in extents if reached * distance > most)
    return problem.dtype, problem.layout, problem.split_k, m, n, k, *far


def rules_with(
    named: tuple[Rule, ...] = (), complete: tuple[Rule, ...] = (), problem: tuple[Rule, ...] = ()
) -> Rules[Any]:
    """Return the rules of GEMM kernels, followed by further ones of each kind."""
    return Rules((*NAME_RULES, *named), (*COMPLETE_RULES, *complete), (*PROBLEM_RULES, *problem), attrgetter("missing"))


GEMM_RULES = rules_with()
