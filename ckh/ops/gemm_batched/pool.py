"""Kernels of batched GEMMs: names, rules, pools and lists.

Names are those of `GemmKernel` that begin with `gemm_batched_`, as in CK Tile; those of AMD's tile engine, which begin
with `batched_gemm_`, are parsed too.

Source of the rules: CK Tile's `BatchedGemmKernel`: its grid has a row of blocks per product, offsets of matrices are 32
bits, and lines are loaded and stored in vectors from their first element on. Source of the pools: the configuration of
AMD's tile engine for batched GEMMs, which has `gemm_universal`'s tiles, waves and instructions with three pipelines and
without persistent kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.ops.gemm_batched.problem import BATCH_STRIDES, LEADING, OP_TYPE
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of
from ckh.ops.gemm_universal.kernels.names import parser_of
from ckh.ops.gemm_universal.kernels.pool import pools_of
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, MAX_OFFSET, rule_key, rules_with
from ckh.ops.gemm_universal.kernels.search_space import NarrowedSpaces, searched_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.judging import Rules
    from ckh.ops.gemm_batched.problem import GemmBatchedProblem


@dataclass(frozen=True, slots=True, order=True)
class GemmBatchedKernel(GemmKernel):
    """A kernel that computes a batch of matrix products."""

    op_type = OP_TYPE


parse_batched_kernel = parser_of(GemmBatchedKernel, r"(?:gemm_batched|batched_gemm)")

SPACES = NarrowedSpaces(("compv3", "compv4", "mem"), are_persistent=False)
MAX_BATCH = 2**16 - 1  # blocks of a grid along its second axis
_MOST_WIDTH = 16  # elements

rule = BOOK.rule


@rule
def _one_block_per_tile(persistent: bool | None) -> Iterator[str]:  # noqa: FBT001 - a column of kernels
    if persistent:
        yield "batched kernels are not persistent"


@rule
def _aligned(arch: ArchSpec, problem: GemmBatchedProblem, widths: Triple | None) -> Iterator[str]:
    if widths is None or not arch.vector_divisibility:
        return
    for names in (LEADING, BATCH_STRIDES):
        for operand, name, width in zip("abc", names, widths, strict=True):
            if getattr(problem, name) % width:
                yield f"{name} = {getattr(problem, name)} is not a multiple of vector_{operand} = {width}"


@rule
def _reaches_all(arch: ArchSpec, problem: GemmBatchedProblem) -> Iterator[str]:
    if not arch.is_gpu:
        return
    if problem.batch > MAX_BATCH:
        yield f"batch {problem.batch} exceeds the {MAX_BATCH} block rows of a grid"
    for operand, offset in zip("ABC", _offsets(problem), strict=True):
        if offset > MAX_OFFSET:
            yield f"the last {operand} begins at element {offset}; CK Tile's offsets reach {MAX_OFFSET}"


@rule
def _no_gaps(arch: ArchSpec, problem: GemmBatchedProblem) -> Iterator[str]:
    if not arch.is_gpu and any(getattr(problem, name) for name in LEADING):
        yield f"{arch.name} has no gaps between lines"


def _offsets(problem: GemmBatchedProblem) -> tuple[int, ...]:
    """First elements of the last A, B and C."""
    return tuple((problem.batch - 1) * stride for stride in problem.batch_strides)


BATCHED_RULES: Rules[GemmBatchedKernel] = rules_with(
    complete=(_one_block_per_tile,), problem=(_aligned, _reaches_all, _no_gaps)
)
POOLS = pools_of(GemmBatchedKernel, BATCHED_RULES, parse_batched_kernel, SPACES.pool)
BENCH_POOLS = pools_of(GemmBatchedKernel, BATCHED_RULES, parse_batched_kernel, SPACES.bench)
SEARCHED = searched_in(SPACES.search, BATCHED_RULES, GemmBatchedKernel)
LISTS = lists_of(ListedKernels(GemmBatchedKernel, BATCHED_RULES, parse_batched_kernel))


def batched_rule_key(problem: GemmBatchedProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    distances = (getattr(problem, name) % _MOST_WIDTH for name in (*LEADING, *BATCH_STRIDES))
    reached = (offset <= MAX_OFFSET for offset in _offsets(problem))
    return rule_key(problem), problem.batch <= MAX_BATCH, *distances, *reached
