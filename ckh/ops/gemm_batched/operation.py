"""The operation `gemm_batched`: `gemm_universal` with a batch and distances.

Names of kernels begin with `gemm_batched_`, as in CK Tile; those of AMD's tile engine, which begin with
`batched_gemm_`, are parsed too.

Source of the rules: CK Tile's `BatchedGemmKernel`: its grid has a row of blocks per product, offsets of matrices are 32
bits, and lines are loaded and stored in vectors from their first element on. Source of the pools: the configuration of
AMD's tile engine for batched GEMMs, which has `gemm_universal`'s tiles, waves and instructions with three pipelines and
without persistent kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.ops.base import TiledSizes
from ckh.ops.gemm_batched.problem import BATCH_STRIDES, LEADING, OP_TYPE, GemmBatchedProblem
from ckh.ops.gemm_universal.derived import GEMM, derived, sliced_by
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.kernel import GemmKernel, parser_of
from ckh.ops.gemm_universal.kernels.family import KernelFamily
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, MAX_OFFSET, rule_key, rules_with

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.features.engine import Columns
    from ckh.kernels.judging import Rules


@dataclass(frozen=True, slots=True, order=True)
class GemmBatchedKernel(GemmKernel):
    """A kernel that computes a batch of matrix products."""

    op_type = OP_TYPE


parse_batched_kernel = parser_of(GemmBatchedKernel, r"(?:gemm_batched|batched_gemm)")

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
FAMILY = KernelFamily(
    GemmBatchedKernel, BATCHED_RULES, parse_batched_kernel, ("compv3", "compv4", "mem"), are_persistent=False
)
POOLS = FAMILY.pools


def batched_rule_key(problem: GemmBatchedProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    distances = (getattr(problem, name) % _MOST_WIDTH for name in (*LEADING, *BATCH_STRIDES))
    reached = (offset <= MAX_OFFSET for offset in _offsets(problem))
    return rule_key(problem), problem.batch <= MAX_BATCH, *distances, *reached


_POWERS = 12


def _tiles(c: Columns) -> Any:
    """Workgroups of all products, apart from the split of K."""
    return c["num_tiles_m"] * c["num_tiles_n"] * c["batch"]


def _powers_of_two(name: str) -> Callable[[Columns], Any]:
    """Exponent of the largest power of two that divides a distance, at most 12; 0: dense."""
    return lambda c: sum(
        ((c[name] > 0) & (np.mod(c[name], 2.0**power) == 0)).astype(float) for power in range(1, _POWERS + 1)
    )


_FEATURES = (
    Feature("batch", "products", lambda c: c["batch"]),
    Feature("log2_batch", "log2", lambda c: np.log2(np.maximum(c["batch"], 1))),
    Feature("tiles_per_product", "tiles", lambda c: c["num_tiles_m"] * c["num_tiles_n"]),
    Feature("waves_of_workgroups", "", lambda c: np.ceil(_tiles(c) * c["split_k"] / np.maximum(c["hw_num_cus"], 1))),
    Feature(
        "strided",
        "category",
        lambda c: sum((c[name] > 0) * 2.0**place for place, name in enumerate((*LEADING, *BATCH_STRIDES))),
    ),
    *(Feature(f"powers_of_two_{name}", "", _powers_of_two(name)) for name in LEADING),
)

GEMM_BATCHED = GEMM_UNIVERSAL.extended(
    OP_TYPE, _FEATURES, categorical=("strided",), derived={"total_output_tiles": _tiles}
)

_DERIVED = derived(
    __name__,
    "batches of equal matrix products",
    GemmBatchedProblem,
    FAMILY,
    GEMM_BATCHED,
    {
        "batch": "number of products",
        **{f"ld{text}": f"distance of the lines of {text.upper()} in elements, 0: dense" for text in "abc"},
        **{
            f"batch_stride_{text}": f"distance of the matrices of {text.upper()} in elements, 0: dense"
            for text in "abc"
        },
    },
    table_sizes=("batch", "m", "n", "k"),
)


def _tiled(problem: GemmBatchedProblem) -> TiledSizes:
    k = -(-problem.k // problem.split_k)
    return TiledSizes(problem.m, problem.n, k, problem.split_k * problem.batch)


def _shaped() -> object:
    from ckh.shapes.layers import BatchedMatmul
    from ckh.shapes.shaped import Shaped

    def problem(shape: BatchedMatmul, dtype: str) -> GemmBatchedProblem:
        return GemmBatchedProblem(shape.m, shape.n, shape.k, shape.dtype or dtype, shape.layout, batch=shape.batch)

    def shape(of: GemmBatchedProblem) -> BatchedMatmul:
        return BatchedMatmul(of.batch, of.m, of.n, of.k, of.dtype, of.layout)

    return Shaped(BatchedMatmul, problem, shape)


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        slices={**GEMM.problems.slices, "batch": sliced_by("batch", "products", few=16, many=256)},
        place=lambda problem: [*GEMM.problems.place(problem), log2(problem.batch)],
        batch="batch",
        shaped=_shaped,
        tiled=_tiled,
    ),
    kernels=replace(_DERIVED.kernels, key_of=batched_rule_key),
)
