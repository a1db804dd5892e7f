"""Rules for a GEMM kernel to support a problem, and all rules of GEMM kernels together.

Nothing is corrected: an invalid combination is rejected with all of its reasons.

Source: the support check of CK Tile's universal GEMM kernel, which requires padding and whole vectors along the
contiguous axes of A, B and C; and AMD's data, where the `mem` pipeline runs every size whatever padding its name
states.
A kernel for the host has no code for the remainder of an unpadded axis, contiguous or not.
"""

from __future__ import annotations

from math import gcd
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.kernels.judging import Rule, RuleBook, Rules
from ckh.kernels.pipelines import ALWAYS_PADDED_PIPELINES
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


@rule
def _same_kind(problem: GemmProblem, dtype: str, layout: str | None) -> Iterator[str]:
    if dtype != problem.dtype:
        yield f"a kernel of {dtype} cannot run a problem of {problem.dtype}"
    if layout != problem.layout:
        yield f"a kernel of layout {layout} cannot run a problem of layout {problem.layout}"


@BOOK.quantity
def is_always_padded(arch: ArchSpec, pipeline: str) -> bool:
    """True if a kernel supports every size on a GPU, whatever padding its name states."""
    return arch.is_gpu and pipeline in ALWAYS_PADDED_PIPELINES


@rule
def _padding(
    arch: ArchSpec,
    problem: GemmProblem,
    is_always_padded: bool,
    tile: Triple,
    pads: tuple[bool | None, bool | None, bool | None],
) -> Iterator[str]:
    if is_always_padded:
        return
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
def _addressable(arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if not arch.is_gpu:
        return
    for name, size, most in _extents(problem):
        if size > most:
            yield f"{name} has {size} elements; CK Tile's offsets reach {most}"


def _extents(problem: GemmProblem) -> Iterator[tuple[str, int, int]]:
    """Yield each matrix, its elements and the limit of CK Tile's offsets: elements of loads, bytes of stores."""
    stored = MAX_OFFSET // int(DTYPE_BYTES[output_dtype(problem.dtype)])
    yield from zip("ABC", problem.spans, (MAX_OFFSET, MAX_OFFSET, stored), strict=True)


PROBLEM_RULES: tuple[Rule, ...] = (_same_kind, _padding, _whole_vectors, _split_k, _addressable)

# Multiple of every tile and vector width, of pools, of measured kernels and of kernels that a user names.
_MOST_DIVISOR = 2**10 * 3**2 * 5 * 7 * 11 * 13


def rule_key(problem: GemmProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    m, n = (gcd(problem.size(axis), _MOST_DIVISOR) for axis in "mn")
    k = gcd(problem.k, _MOST_DIVISOR) if problem.split_k == 1 else problem.k
    reached = (size <= most for _, size, most in _extents(problem))
    return problem.dtype, problem.layout, problem.split_k, m, n, k, *reached


def rules_with(
    named: tuple[Rule, ...] = (), complete: tuple[Rule, ...] = (), problem: tuple[Rule, ...] = ()
) -> Rules[Any]:
    """Return the rules of GEMM kernels, followed by further ones of each kind."""
    return Rules((*NAME_RULES, *named), (*COMPLETE_RULES, *complete), (*PROBLEM_RULES, *problem), attrgetter("missing"))


GEMM_RULES = rules_with()
