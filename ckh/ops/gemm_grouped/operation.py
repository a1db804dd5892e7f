"""Record of the operation `gemm_grouped`: that of `gemm_universal`, for groups of products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING, Any

from ckh.ops.base import TiledSizes, lazily
from ckh.ops.gemm_grouped.features import GEMM_GROUPED
from ckh.ops.gemm_grouped.pool import POOLS
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_universal.derived import GEMM, derived, sliced_by

if TYPE_CHECKING:
    from ckh.ops.gemm_grouped.problem import Groups

_DERIVED = derived(
    __name__,
    "matrix products with separate M in one launch, such as a layer of experts",
    GemmGroupedProblem,
    POOLS,
    GEMM_GROUPED,
    {"ms": "M of the groups, each with their number", "m": "sum of the groups' M"},
)


@dataclass(frozen=True, slots=True)
class GroupedSizes(TiledSizes):
    """Products that share N and K, which tiles cover one by one; `m` is the sum of their M.

    Attributes:
        groups: M and number of the products.
    """

    groups: Groups

    def tiled_m(self, tile_m: Any) -> Any:
        """M in whole tiles of all products."""
        return sum(-(-m // tile_m) * tile_m * count for m, count in self.groups)


def _place(problem: GemmGroupedProblem) -> list[float]:
    """`gemm_universal`'s point for the sum of all M, the number of groups, and the largest M relative to the mean."""
    most, number = problem.groups[0][0], problem.num_groups
    return [*GEMM.problems.place(problem), log2(number), log2(most * number / problem.m)]


def _tiled(problem: GemmGroupedProblem) -> TiledSizes:
    k = -(-problem.k // problem.split_k)
    return GroupedSizes(problem.m, problem.n, k, problem.split_k, problem.groups)


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        slices={
            **GEMM.problems.slices,
            "groups": sliced_by("num_groups", "groups", few=16, many=64),
            "rows": {
                "equal groups": lambda p: len(p.groups) == 1,
                "unequal groups": lambda p: len(p.groups) > 1,
            },
        },
        place=_place,
        batch="",
        tiled=_tiled,
    ),
    kernels=replace(_DERIVED.kernels, lists=lazily("ckh.ops.gemm_grouped.pool:LISTS")),
)
