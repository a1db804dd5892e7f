"""Slices that efficiency is reported for, besides the whole.

The limits on M and K are those of AMD's evaluation, so that its numbers and ours are about the same problems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ckh.ops.gemm_universal.features import CODES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.gemm_universal.problem import GemmProblem

_ProblemTest = Callable[["GemmProblem"], bool]
_KernelTest = Callable[["GemmKernel"], bool]

_SMALL_M, _MEDIUM_M, _LARGE_M = 32, 256, 4096
_MEDIUM_K, _DEEP_K = 512, 4096


def _is_layout(layout: str) -> _ProblemTest:
    return lambda p: p.layout == layout


def _is_pipeline(pipeline: str) -> _KernelTest:
    return lambda k: k.pipeline == pipeline


# Kind of slice -> slice -> whether a problem is in it. The slices of a kind do not overlap.
SLICES: dict[str, dict[str, _ProblemTest]] = {
    "shape": {
        "tiny M": lambda p: p.m < _SMALL_M,
        "small M": lambda p: _SMALL_M <= p.m < _MEDIUM_M,
        "medium M": lambda p: _MEDIUM_M <= p.m < _LARGE_M,
        "large M": lambda p: p.m >= _LARGE_M,
    },
    "depth": {
        "shallow K": lambda p: p.k < _MEDIUM_K,
        "medium K": lambda p: _MEDIUM_K <= p.k < _DEEP_K,
        "deep K": lambda p: p.k >= _DEEP_K,
    },
    "layout": {layout: _is_layout(layout) for layout in GEMM_LAYOUTS},
}

# The same of kernels: within a slice the best and the chosen kernel are taken from its kernels alone.
KERNEL_SLICES: dict[str, dict[str, _KernelTest]] = {
    "pipeline": {pipeline: _is_pipeline(pipeline) for pipeline in CODES["pipeline"]},
}
