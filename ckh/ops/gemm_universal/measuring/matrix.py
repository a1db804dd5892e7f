"""Matrices of kernels that show what of the kernels' choices works: pipelines and schedulers, in each layout."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from ckh.bench.computation import Case
from ckh.errors import NoKernelError, UsageError
from ckh.kernels.pipelines import PIPELINE_CODES
from ckh.kernels.scheduler import Scheduler
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, OP_TYPE, GemmProblem
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from ckh.bench.computation import MatrixSettings
    from ckh.ops.gemm_universal.kernel import GemmKernel

_TILES, _TILES_K = 2, 8  # of the problem that a kernel is tried on
_MATRICES = {"pipelines": (Scheduler.INTRAWAVE,), "schedulers": tuple(Scheduler)}


def matrix(name: str, settings: MatrixSettings) -> tuple[Case[GemmProblem, GemmKernel], ...]:
    """The cases of a matrix, by layout: nothing is left out because it is known not to work.

    Raises:
        UsageError: there is no such matrix, or a setting is one of convolutions.
        NoKernelError: the architecture has no kernel to begin with.
    """
    if settings.variant or settings.ndim:
        raise UsageError(
            f"{OP_TYPE} has neither directions nor dimensions", "leave those options out", code="inapplicable-option"
        )
    if name not in _MATRICES:
        raise UsageError(f"{OP_TYPE} has no matrix {name!r}", one_of(name, _MATRICES), code="unknown-name")
    return tuple(
        Case(_label(kernel, name), kernel, problem_for(kernel), {"layout": kernel.layout})
        for base in (_base(settings, layout) for layout in GEMM_LAYOUTS)
        for pipeline, scheduler in product(PIPELINE_CODES, _MATRICES[name])
        for kernel in [replace(base, pipeline=pipeline, scheduler=scheduler)]
    )


def problem_for(kernel: GemmKernel) -> GemmProblem:
    """A few whole tiles of a kernel."""
    m, n, k = kernel.tile
    return GemmProblem(_TILES * m, _TILES * n, _TILES_K * k, kernel.dtype, kernel.layout)


def _label(kernel: GemmKernel, name: str) -> str:
    return kernel.pipeline if len(_MATRICES[name]) == 1 else f"{kernel.pipeline} {kernel.scheduler}"


def _base(settings: MatrixSettings, layout: str) -> GemmKernel:
    pool = gemm_pool(settings.arch, settings.dtype, layout)
    if not pool:
        raise NoKernelError(f"{settings.arch.name} has no GEMM kernel of {settings.dtype}")
    return pool[0]
