"""Record of the operation `gemm_grouped`: that of `gemm_universal`, and what differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import log2
from typing import TYPE_CHECKING, Any

from ckh.kernels.timed import TIMED_NAME
from ckh.ops.base import Operation, TiledSizes, lazily
from ckh.ops.gemm_grouped.features import GEMM_GROUPED
from ckh.ops.gemm_grouped.kernel import GemmGroupedKernel, parse_grouped_kernel
from ckh.ops.gemm_grouped.pool import POOLS
from ckh.ops.gemm_grouped.problem import (
    GROUPED_IDENTITY,
    OP_TYPE,
    PREFIX,
    GemmGroupedProblem,
    Groups,
    parse_grouped_problem,
)
from ckh.ops.gemm_universal import operation as gemm
from ckh.ops.gemm_universal.columns import KERNEL_COLUMNS, problem_columns
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS
from ckh.schema import Column

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.pools import Candidates, KernelList

_GEMM: Operation[Any, Any] = gemm.OPERATION
_FEW, _MANY = 16, 64  # groups


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


def _columns() -> tuple[Column, ...]:
    meanings = {name: f"problem size {name}" for name in GEMM_COLUMNS} | {"m": "sum of the groups' M"}
    sizes = (Column(name, "int64", "", meaning) for name, meaning in meanings.items())
    return gemm.columns_of((Column("ms", "string", "", "M of the groups, each with their number"), *sizes))


def _candidates(
    problem: GemmGroupedProblem, arch: ArchSpec, model: Path, only: KernelList[GemmGroupedKernel] | None = None
) -> Candidates[GemmGroupedKernel]:
    return POOLS.candidates(problem, arch, problem.dtype, problem.layout, model=model, only=only)


def _place(problem: GemmGroupedProblem) -> list[float]:
    """`gemm_universal`'s point for the sum of all M, the number of groups, and the largest M relative to the mean."""
    most, number = problem.groups[0][0], problem.num_groups
    return [*_GEMM.problems.place(problem), log2(number), log2(most * number / problem.m)]


def _tiled(problem: GemmGroupedProblem) -> TiledSizes:
    k = -(-problem.k // problem.split_k)
    return GroupedSizes(problem.m, problem.n, k, problem.split_k, problem.groups)


def _load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp16"
) -> tuple[GemmGroupedProblem, ...]:
    from ckh.ops.gemm_grouped.problem_sets import SETS

    return SETS.load(source, variant, dtype, default_dtype)


def _set_names() -> tuple[str, ...]:
    from ckh.ops.gemm_grouped.problem_sets import SETS

    return SETS.names()


OPERATION: Operation[GemmGroupedProblem, GemmGroupedKernel] = Operation(
    name=OP_TYPE,
    summary="matrix products with separate M in one launch, such as a layer of experts",
    prefix=PREFIX,
    problems=replace(
        _GEMM.problems,
        identity=GROUPED_IDENTITY,
        parse=parse_grouped_problem,
        of_row=partial(gemm.problem_of_row, kind=GemmGroupedProblem),
        columns=partial(gemm.identity_columns, kind=GemmGroupedProblem),
        features=partial(problem_columns, kind=GemmGroupedProblem),
        slices={
            **_GEMM.problems.slices,
            "groups": {
                "few groups": lambda p: p.num_groups < _FEW,
                "groups": lambda p: _FEW <= p.num_groups < _MANY,
                "many groups": lambda p: p.num_groups >= _MANY,
            },
            "rows": {
                "equal groups": lambda p: len(p.groups) == 1,
                "unequal groups": lambda p: len(p.groups) > 1,
            },
        },
        place=_place,
        split_by=GROUPED_IDENTITY,
        load=_load_problems,
        set_names=_set_names,
        batch="",
        shaped=lazily("ckh.ops.gemm_grouped.shaped:SHAPED"),
        requested=lazily("ckh.ops.gemm_grouped.requested:REQUESTED"),
        tiled=_tiled,
    ),
    kernels=replace(
        _GEMM.kernels,
        type=GemmGroupedKernel,
        parse=parse_grouped_kernel,
        candidates=_candidates,
        listed=_candidates,
        searched=lazily("ckh.ops.gemm_grouped.pool:SEARCHED"),
        lists=lazily("ckh.ops.gemm_grouped.pool:LISTS"),
    ),
    training=replace(
        _GEMM.training,
        columns=_columns(),
        engine=GEMM_GROUPED,
        input_columns=(*GROUPED_IDENTITY, *KERNEL_COLUMNS),
        legacy_columns=dict,
        model_files={TIMED_NAME: POOLS.timed_file},
        judged=(),
        amd_features=(),
        formats=None,
    ),
    measured=lazily("ckh.ops.gemm_grouped.measuring.measured:MEASURED"),
)
