"""Rules for a GEMM kernel to support a problem, and all rules of GEMM kernels together.

Nothing is corrected: an invalid combination is rejected with all of its reasons.

Source: the support check of CK Tile's universal GEMM kernel (`IsSupportedArgument`), which requires padding and whole
vectors along the contiguous axes of A, B and C. It holds for every pipeline: AMD's builders and ckh pad as the name
states. Only AMD's data convert `mem` to padded (`columns.kernel_columns`).
A kernel for the host has no code for the remainder of an unpadded axis, contiguous or not.
"""

from __future__ import annotations

from math import gcd, prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.kernels.judging import Rule, RuleBook, Rules
from ckh.kernels.main_loops import end_alike, loop_of
from ckh.kernels.pipelines import READS_BEYOND
from ckh.ops.gemm_universal.kernels.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.ops.gemm_universal.kernels.vectors import Loads, effective_widths
from ckh.ops.gemm_universal.problem import contiguous_axes, output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.ops.gemm_universal.problem import GemmProblem

BOOK = RuleBook()
rule = BOOK.rule

_HALF = frozenset({"fp16", "bf16"})
MAX_OFFSET = 2**31 - 1
_MAX_LOAD_BYTES = 2**32 - 1
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
    """Return the main loop of a complete GPU kernel (`main_loops.loop_of`), tile K and K of an instruction."""
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
    loads = min(MAX_OFFSET, int(_MAX_LOAD_BYTES // DTYPE_BYTES[problem.dtype]))
    stores = int(MAX_OFFSET // DTYPE_BYTES[output_dtype(problem.dtype)])
    size = dict(zip("mnk", tile, strict=True))
    for (name, axis, beyond, most), (lines, _), distance in zip(
        zip("ABC", _line_axes(problem.layout), _TILES_BEYOND, (loads, loads, stores), strict=True),
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
