"""Record of the operation `gemm_multi_d`: that of `gemm_universal`, and what differs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ckh.kernels.timed import TIMED_NAME
from ckh.ops.base import Operation, lazily
from ckh.ops.gemm_multi_d.features import GEMM_MULTI_D
from ckh.ops.gemm_multi_d.kernel import GemmMultiDKernel, parse_multi_d_kernel
from ckh.ops.gemm_multi_d.pool import POOLS, multi_d_rule_key
from ckh.ops.gemm_multi_d.problem import (
    FUNCTIONS,
    MULTI_D_IDENTITY,
    OP_TYPE,
    PREFIX,
    GemmMultiDProblem,
    parse_multi_d_problem,
)
from ckh.ops.gemm_universal import operation as gemm
from ckh.ops.gemm_universal.columns import KERNEL_COLUMNS, problem_columns
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS
from ckh.schema import Column

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.pools import Candidates, KernelList

_GEMM: Operation[Any, Any] = gemm.OPERATION


def _columns() -> tuple[Column, ...]:
    return gemm.columns_of(
        (
            Column("function", "string", "", "function of the epilogue: " + ", ".join(FUNCTIONS)),
            Column("ds", "string", "", "tensors of the epilogue: r a row-major M x N matrix, v a vector of N"),
            *(Column(name, "int64", "", f"problem size {name}") for name in GEMM_COLUMNS),
        )
    )


def _candidates(
    problem: GemmMultiDProblem, arch: ArchSpec, model: Path, only: KernelList[GemmMultiDKernel] | None = None
) -> Candidates[GemmMultiDKernel]:
    group = (problem.dtype, problem.layout, problem.function, problem.num_d)
    return POOLS.candidates(problem, arch, *group, model=model, only=only)


def _mismatch(kernel: GemmMultiDKernel, problem: GemmMultiDProblem) -> str:
    is_same = (kernel.function, kernel.num_d) == (problem.function, problem.num_d)
    other = f"a kernel of {kernel.function} with {kernel.num_d} tensors on {problem.canonical()}"
    return str(_GEMM.kernels.mismatch(kernel, problem)) or ("" if is_same else other)


def _computes(function: str) -> Callable[[GemmMultiDProblem], bool]:
    return lambda problem: problem.function == function


def _place(problem: GemmMultiDProblem) -> list[float]:
    """`gemm_universal`'s point, and one axis for each function."""
    return [*_GEMM.problems.place(problem), *(4.0 * (problem.function == name) for name in FUNCTIONS)]


def _load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp16"
) -> tuple[GemmMultiDProblem, ...]:
    from ckh.ops.gemm_multi_d.problem_sets import SETS

    return SETS.load(source, variant, dtype, default_dtype)


def _set_names() -> tuple[str, ...]:
    from ckh.ops.gemm_multi_d.problem_sets import SETS

    return SETS.names()


OPERATION: Operation[GemmMultiDProblem, GemmMultiDKernel] = Operation(
    name=OP_TYPE,
    summary="matrix products with bias, residual, scale or activation",
    prefix=PREFIX,
    problems=replace(
        _GEMM.problems,
        identity=MULTI_D_IDENTITY,
        parse=parse_multi_d_problem,
        of_row=partial(gemm.problem_of_row, kind=GemmMultiDProblem),
        columns=partial(gemm.identity_columns, kind=GemmMultiDProblem),
        features=partial(problem_columns, kind=GemmMultiDProblem),
        slices={**_GEMM.problems.slices, "function": {name: _computes(name) for name in FUNCTIONS}},
        place=_place,
        split_by=MULTI_D_IDENTITY,
        load=_load_problems,
        set_names=_set_names,
        shaped=lazily("ckh.ops.gemm_multi_d.shaped:SHAPED"),
        requested=lazily("ckh.ops.gemm_multi_d.requested:REQUESTED"),
    ),
    kernels=replace(
        _GEMM.kernels,
        type=GemmMultiDKernel,
        parse=parse_multi_d_kernel,
        mismatch=_mismatch,
        candidates=_candidates,
        key_of=multi_d_rule_key,
        listed=_candidates,
        searched=lazily("ckh.ops.gemm_multi_d.pool:SEARCHED"),
        lists=None,
    ),
    training=replace(
        _GEMM.training,
        columns=_columns(),
        engine=GEMM_MULTI_D,
        input_columns=(*MULTI_D_IDENTITY, *KERNEL_COLUMNS),
        legacy_columns=dict,
        model_files={TIMED_NAME: POOLS.timed_file},
        judged=(),
        amd_features=(),
        formats=None,
    ),
    measured=lazily("ckh.ops.gemm_multi_d.measuring.measured:MEASURED"),
)
