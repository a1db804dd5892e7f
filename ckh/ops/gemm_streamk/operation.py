"""Record of the operation `gemm_streamk`: that of `gemm_universal`, and what differs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.table import column_of
from ckh.kernels.timed import TIMED_NAME
from ckh.ops.base import Encoding, Operation, lazily
from ckh.ops.gemm_streamk.features import GEMM_STREAMK, OWN_COLUMNS
from ckh.ops.gemm_streamk.kernel import GemmStreamKKernel, parse_streamk_kernel
from ckh.ops.gemm_streamk.pool import POOLS
from ckh.ops.gemm_streamk.problem import OP_TYPE, PREFIX, GemmStreamKProblem, parse_streamk_problem
from ckh.ops.gemm_universal import operation as gemm
from ckh.ops.gemm_universal.columns import INPUT_COLUMNS, problem_columns
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS
from ckh.schema import Column

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.pools import Candidates, KernelList

_GEMM: Operation[Any, Any] = gemm.OPERATION
_OWN = (
    Column("reduction", "string", "", "how partial sums become a result: atomic, reduction"),
    Column("blocks_per_cu", "int64", "", "blocks per compute unit that share tiles, 0: as many as it holds"),
)


def _kernel_columns(kernels: Sequence[GemmStreamKKernel], encoding: Encoding) -> dict[str, list[Any]]:
    own = {name: column_of(kernels, name).tolist() for name in OWN_COLUMNS}
    return {**_GEMM.kernels.columns(kernels, encoding), **own}


def _kernel_features(kernels: Sequence[GemmStreamKKernel], encoding: Encoding) -> dict[str, Any]:
    return {
        **_GEMM.kernels.features(kernels, encoding),
        "reduction": column_of(kernels, "reduction").astype(np.str_),
        "blocks_per_cu": column_of(kernels, "blocks_per_cu").astype(np.float64),
    }


def _candidates(
    problem: GemmStreamKProblem, arch: ArchSpec, model: Path, only: KernelList[GemmStreamKKernel] | None = None
) -> Candidates[GemmStreamKKernel]:
    return POOLS.candidates(problem, arch, problem.dtype, problem.layout, model=model, only=only)


def _load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp16"
) -> tuple[GemmStreamKProblem, ...]:
    from ckh.ops.gemm_streamk.problem_sets import SETS

    return SETS.load(source, variant, dtype, default_dtype)


def _set_names() -> tuple[str, ...]:
    from ckh.ops.gemm_streamk.problem_sets import SETS

    return SETS.names()


OPERATION: Operation[GemmStreamKProblem, GemmStreamKKernel] = Operation(
    name=OP_TYPE,
    summary="matrix products whose blocks share tiles",
    prefix=PREFIX,
    problems=replace(
        _GEMM.problems,
        parse=parse_streamk_problem,
        of_row=partial(gemm.problem_of_row, kind=GemmStreamKProblem),
        columns=partial(gemm.identity_columns, kind=GemmStreamKProblem),
        features=partial(problem_columns, kind=GemmStreamKProblem),
        load=_load_problems,
        set_names=_set_names,
        shaped=lazily("ckh.ops.gemm_streamk.shaped:SHAPED"),
        requested=lazily("ckh.ops.gemm_streamk.requested:REQUESTED"),
    ),
    kernels=replace(
        _GEMM.kernels,
        type=GemmStreamKKernel,
        parse=parse_streamk_kernel,
        columns=_kernel_columns,
        features=_kernel_features,
        candidates=_candidates,
        listed=_candidates,
        searched=lazily("ckh.ops.gemm_streamk.pool:SEARCHED"),
        lists=None,
    ),
    training=replace(
        _GEMM.training,
        columns=gemm.columns_of((Column(name, "int64", "", f"problem size {name}") for name in GEMM_COLUMNS), _OWN),
        engine=GEMM_STREAMK,
        input_columns=(*INPUT_COLUMNS, *OWN_COLUMNS),
        legacy_columns=dict,
        model_files={TIMED_NAME: POOLS.timed_file},
        judged=(),
        amd_features=(),
        formats=lazily("ckh.ops.gemm_streamk.formats:FORMATS"),
    ),
    measured=lazily("ckh.ops.gemm_streamk.measuring.measured:MEASURED"),
)
