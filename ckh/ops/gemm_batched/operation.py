"""Record of the operation `gemm_batched`: that of `gemm_universal`, and what differs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from math import log2
from typing import TYPE_CHECKING, Any

from ckh.kernels.timed import TIMED_NAME
from ckh.ops.base import Operation, TiledSizes, lazily
from ckh.ops.gemm_batched.features import GEMM_BATCHED
from ckh.ops.gemm_batched.kernel import GemmBatchedKernel, parse_batched_kernel
from ckh.ops.gemm_batched.kernels.pool import POOLS
from ckh.ops.gemm_batched.kernels.problem_rules import batched_rule_key
from ckh.ops.gemm_batched.problem import (
    BATCHED_COLUMNS,
    BATCHED_IDENTITY,
    OP_TYPE,
    PREFIX,
    GemmBatchedProblem,
    parse_batched_problem,
)
from ckh.ops.gemm_universal import operation as gemm
from ckh.ops.gemm_universal.columns import KERNEL_COLUMNS, problem_columns
from ckh.schema import Column

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.pools import Candidates, KernelList

_GEMM: Operation[Any, Any] = gemm.OPERATION
_DISTANCES = {"ld": "lines", "batch_stride_": "matrices"}
_FEW, _MANY = 16, 256  # products


def _columns() -> tuple[Column, ...]:
    meanings = {name: f"problem size {name}" for name in BATCHED_COLUMNS} | {"batch": "number of products"}
    for (prefix, what), one in product(_DISTANCES.items(), "abc"):
        meanings[f"{prefix}{one}"] = f"distance of the {what} of {one.upper()} in elements, 0: dense"
    return gemm.columns_of(Column(name, "int64", "", meaning) for name, meaning in meanings.items())


def _candidates(
    problem: GemmBatchedProblem, arch: ArchSpec, model: Path, only: KernelList[GemmBatchedKernel] | None = None
) -> Candidates[GemmBatchedKernel]:
    return POOLS.candidates(problem, arch, problem.dtype, problem.layout, model=model, only=only)


def _tiled(problem: GemmBatchedProblem) -> TiledSizes:
    k = -(-problem.k // problem.split_k)
    return TiledSizes(problem.m, problem.n, k, problem.split_k * problem.batch)


def _load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp16"
) -> tuple[GemmBatchedProblem, ...]:
    from ckh.ops.gemm_batched.problem_sets import SETS

    return SETS.load(source, variant, dtype, default_dtype)


def _set_names() -> tuple[str, ...]:
    from ckh.ops.gemm_batched.problem_sets import SETS

    return SETS.names()


OPERATION: Operation[GemmBatchedProblem, GemmBatchedKernel] = Operation(
    name=OP_TYPE,
    summary="batches of equal matrix products",
    prefix=PREFIX,
    problems=replace(
        _GEMM.problems,
        identity=BATCHED_IDENTITY,
        sizes=tuple(BATCHED_COLUMNS),
        parse=parse_batched_problem,
        of_row=partial(gemm.problem_of_row, kind=GemmBatchedProblem),
        columns=partial(gemm.identity_columns, kind=GemmBatchedProblem),
        features=partial(problem_columns, kind=GemmBatchedProblem),
        slices={
            **_GEMM.problems.slices,
            "batch": {
                "few products": lambda p: p.batch < _FEW,
                "products": lambda p: _FEW <= p.batch < _MANY,
                "many products": lambda p: p.batch >= _MANY,
            },
        },
        place=lambda problem: [*_GEMM.problems.place(problem), log2(problem.batch)],
        split_by=BATCHED_IDENTITY,
        load=_load_problems,
        set_names=_set_names,
        batch="batch",
        shaped=lazily("ckh.ops.gemm_batched.shaped:SHAPED"),
        requested=lazily("ckh.ops.gemm_batched.requested:REQUESTED"),
        tiled=_tiled,
    ),
    kernels=replace(
        _GEMM.kernels,
        type=GemmBatchedKernel,
        parse=parse_batched_kernel,
        candidates=_candidates,
        key_of=batched_rule_key,
        listed=_candidates,
        searched=lazily("ckh.ops.gemm_batched.kernels.pool:SEARCHED"),
        lists=lazily("ckh.ops.gemm_batched.kernels.amd_lists:LISTS"),
    ),
    training=replace(
        _GEMM.training,
        columns=_columns(),
        engine=GEMM_BATCHED,
        input_columns=(*BATCHED_IDENTITY, *KERNEL_COLUMNS),
        legacy_columns=dict,
        model_files={TIMED_NAME: POOLS.timed_file},
        judged=(),
        amd_features=(),
        formats=lazily("ckh.ops.gemm_batched.formats:FORMATS"),
    ),
    measured=lazily("ckh.ops.gemm_batched.measuring.measured:MEASURED"),
)
