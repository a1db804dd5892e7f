"""The operation `gemm_grouped`: `gemm_universal` for groups of products.

Names of kernels begin with `gemm_grouped_`, as in CK Tile; those of AMD's tile engine, which begin with
`grouped_gemm_`, are parsed too.

Source of the pools: the configuration of AMD's tile engine for grouped GEMMs, which has three pipelines, persistent or
not. `gemm_universal`'s rules hold for every group; those that read M read the greatest common divisor of the groups'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.base import GroupedSizes
from ckh.ops.gemm_grouped.problem import OP_TYPE, GemmGroupedProblem, parse_groups
from ckh.ops.gemm_universal.derived import GEMM, derived, sliced_by
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.kernel import GemmKernel, parser_of
from ckh.ops.gemm_universal.kernels.family import KernelFamily
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, rules_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ckh.features.engine import Columns

    Floats = NDArray[np.float64]
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules


@dataclass(frozen=True, slots=True, order=True)
class GemmGroupedKernel(GemmKernel):
    """A kernel that computes matrix products with separate M."""

    op_type = OP_TYPE

    @property
    def chooses_loop(self) -> bool:
        """True if one GPU function has the loops of all numbers of steps, and chooses among them when it runs."""
        return bool(self.persistent) or self.pipeline in DOUBLE_SMEM_PIPELINES


parse_grouped_kernel = parser_of(GemmGroupedKernel, r"(?:gemm_grouped|grouped_gemm)")


@BOOK.rule
def _rows_of_a(arch: ArchSpec, problem: GemmGroupedProblem) -> Iterator[str]:
    if not arch.is_gpu and problem.layout[0] == "c":
        yield f"{arch.name} has no groups of a column-major A"


GROUPED_RULES: Rules[GemmGroupedKernel] = rules_with(problem=(_rows_of_a,))
FAMILY = KernelFamily(GemmGroupedKernel, GROUPED_RULES, parse_grouped_kernel, ("compv3", "compv4", "mem"))
POOLS = FAMILY.pools


def _of_groups(c: Columns, function: Callable[[Floats, Floats], Any]) -> Any:
    """Apply a function of M and number of groups to each problem."""
    texts, inverse = np.unique(c.raw("ms").astype(str), return_inverse=True)
    return np.array([function(*np.array(parse_groups(text), float).T) for text in texts])[inverse]


def _tiles_along_m(c: Columns) -> Any:
    """Tiles along M of all groups; a group's last tile may be partly empty."""
    texts, inverse = np.unique(c.raw("ms").astype(str), return_inverse=True)
    number, height = np.broadcast_arrays(inverse, np.maximum(c["tile_m"], 1))
    tiles = np.empty(number.shape)
    for index, text in enumerate(texts):
        rows = number == index
        m, count = np.array(parse_groups(text), float).T
        heights, of = np.unique(height[rows], return_inverse=True)
        tiles[rows] = (np.ceil(m / heights[:, None]) @ count)[of]
    return tiles


def _spread(m: Floats, count: Floats) -> float:
    """Standard deviation of M relative to its mean."""
    mean = np.average(m, weights=count)
    return float(np.sqrt(np.average((m - mean) ** 2, weights=count)) / mean) if mean else 0.0


_FEATURES = (
    Feature("groups", "groups", lambda c: c["groups"]),
    Feature("groups_with_rows", "groups", lambda c: c["groups_with_rows"]),
    Feature("log2_groups", "log2", lambda c: np.log2(np.maximum(c["groups_with_rows"], 1))),
    Feature("largest_m", "elements", lambda c: c["largest_m"]),
    Feature("mean_m", "elements", lambda c: c["m"] / np.maximum(c["groups_with_rows"], 1)),
    Feature("spread_m", "", lambda c: _of_groups(c, _spread)),
    Feature(
        "tiles_of_largest_group",
        "tiles",
        lambda c: np.ceil(c["largest_m"] / np.maximum(c["tile_m"], 1)) * c["num_tiles_n"],
    ),
    Feature("filled_share_m", "", lambda c: c["m"] / np.maximum(c["num_tiles_m"] * c["tile_m"], 1)),
    Feature(
        "waves_of_workgroups",
        "",
        lambda c: np.ceil(c["total_output_tiles"] * c["split_k"] / np.maximum(c["hw_num_cus"], 1)),
    ),
)

GEMM_GROUPED = GEMM_UNIVERSAL.extended(
    OP_TYPE,
    _FEATURES,
    derived={
        "num_tiles_m": _tiles_along_m,
        "groups": lambda c: _of_groups(c, lambda _, count: count.sum()),
        "groups_with_rows": lambda c: _of_groups(c, lambda m, count: count[m > 0].sum()),
        "largest_m": lambda c: _of_groups(c, lambda m, _: m.max()),
    },
)

_DERIVED = derived(
    __name__,
    "matrix products with separate M in one launch, such as a layer of experts",
    GemmGroupedProblem,
    FAMILY,
    GEMM_GROUPED,
    {"ms": "M of the groups, each with their number", "m": "sum of the groups' M"},
)


def _place(problem: GemmGroupedProblem) -> list[float]:
    """`gemm_universal`'s point for the sum of all M, the number of groups, and the largest M relative to the mean."""
    most, number = problem.groups[0][0], problem.num_groups
    return [*GEMM.problems.place(problem), log2(number), log2(most * number / problem.m)]


def _tiled(problem: GemmGroupedProblem) -> GroupedSizes:
    k = -(-problem.k // problem.split_k)
    return GroupedSizes(problem.m, problem.n, k, problem.split_k, problem.groups)


def _shaped() -> object:
    from ckh.shapes.layers import GroupedMatmul
    from ckh.shapes.shaped import Shaped

    def problem(shape: GroupedMatmul, dtype: str) -> GemmGroupedProblem:
        ms = "+".join(map(str, shape.rows))
        return GemmGroupedProblem(ms=ms, n=shape.n, k=shape.k, dtype=shape.dtype or dtype, layout=shape.layout)

    def shape(of: GemmGroupedProblem) -> GroupedMatmul:
        return GroupedMatmul(of.all_m, of.n, of.k, of.dtype, of.layout)

    return Shaped(GroupedMatmul, problem, shape)


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
        shaped=_shaped,
        tiled=_tiled,
    ),
)
