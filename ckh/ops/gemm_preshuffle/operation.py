"""Record of the operation `gemm_preshuffle`: that of `gemm_universal`, and what differs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ckh.kernels.timed import TIMED_NAME
from ckh.ops.base import Operation, lazily
from ckh.ops.gemm_preshuffle.features import GEMM_PRESHUFFLE
from ckh.ops.gemm_preshuffle.kernel import GemmPreshuffleKernel, parse_preshuffle_kernel
from ckh.ops.gemm_preshuffle.kernel_rules import preshuffle_rule_key
from ckh.ops.gemm_preshuffle.pool import POOLS
from ckh.ops.gemm_preshuffle.problem import (
    OP_TYPE,
    PREFIX,
    PRESHUFFLE_IDENTITY,
    GemmPreshuffleProblem,
    parse_preshuffle_problem,
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
_WEIGHT_OF_ORDER = 4.0


def _columns() -> tuple[Column, ...]:
    return gemm.columns_of(
        (
            Column("b_order", "string", "", "order of B: columns of an instruction x bytes that a lane reads"),
            *(Column(name, "int64", "", f"problem size {name}") for name in GEMM_COLUMNS),
        )
    )


def _candidates(
    problem: GemmPreshuffleProblem, arch: ArchSpec, model: Path, only: KernelList[GemmPreshuffleKernel] | None = None
) -> Candidates[GemmPreshuffleKernel]:
    group = (problem.dtype, problem.layout, problem.permute_n)
    return POOLS.candidates(problem, arch, *group, model=model, only=only)


def _mismatch(kernel: GemmPreshuffleKernel, problem: GemmPreshuffleProblem) -> str:
    other = str(_GEMM.kernels.mismatch(kernel, problem))
    if not other and kernel.is_complete and kernel.b_order != problem.b_order:
        return f"a kernel that reads B in the order {kernel.b_order} on {problem.canonical()}"
    return other


def _place(problem: GemmPreshuffleProblem) -> list[float]:
    """`gemm_universal`'s point, and the order of B."""
    order = problem.stored_order
    of_order = (order.columns / 16, order.bytes / 16, order.permutes_n)
    return [*_GEMM.problems.place(problem), *(_WEIGHT_OF_ORDER * part for part in of_order)]


def _load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp16"
) -> tuple[GemmPreshuffleProblem, ...]:
    from ckh.ops.gemm_preshuffle.problem_sets import SETS

    return SETS.load(source, variant, dtype, default_dtype)


def _set_names() -> tuple[str, ...]:
    from ckh.ops.gemm_preshuffle.problem_sets import SETS

    return SETS.names()


OPERATION: Operation[GemmPreshuffleProblem, GemmPreshuffleKernel] = Operation(
    name=OP_TYPE,
    summary="matrix products with a B that is shuffled beforehand",
    prefix=PREFIX,
    problems=replace(
        _GEMM.problems,
        identity=PRESHUFFLE_IDENTITY,
        parse=parse_preshuffle_problem,
        of_row=partial(gemm.problem_of_row, kind=GemmPreshuffleProblem),
        columns=partial(gemm.identity_columns, kind=GemmPreshuffleProblem),
        features=partial(problem_columns, kind=GemmPreshuffleProblem),
        slices={name: tests for name, tests in _GEMM.problems.slices.items() if name != "layout"},
        place=_place,
        split_by=PRESHUFFLE_IDENTITY,
        load=_load_problems,
        set_names=_set_names,
        shaped=lazily("ckh.ops.gemm_preshuffle.shaped:SHAPED"),
        requested=lazily("ckh.ops.gemm_preshuffle.requested:REQUESTED"),
    ),
    kernels=replace(
        _GEMM.kernels,
        type=GemmPreshuffleKernel,
        parse=parse_preshuffle_kernel,
        mismatch=_mismatch,
        candidates=_candidates,
        key_of=preshuffle_rule_key,
        listed=_candidates,
        searched=lazily("ckh.ops.gemm_preshuffle.pool:SEARCHED"),
        lists=lazily("ckh.ops.gemm_preshuffle.amd_lists:LISTS"),
    ),
    training=replace(
        _GEMM.training,
        columns=_columns(),
        engine=GEMM_PRESHUFFLE,
        input_columns=(*PRESHUFFLE_IDENTITY, *KERNEL_COLUMNS),
        legacy_columns=dict,
        model_files={TIMED_NAME: POOLS.timed_file},
        judged=(),
        amd_features=(),
        formats=lazily("ckh.ops.gemm_preshuffle.formats:FORMATS"),
    ),
    measured=lazily("ckh.ops.gemm_preshuffle.measuring.measured:MEASURED"),
)
