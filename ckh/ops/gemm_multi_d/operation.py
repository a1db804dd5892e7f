"""Record of the operation `gemm_multi_d`: that of `gemm_universal`, for each function of an epilogue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.ops.gemm_multi_d.features import GEMM_MULTI_D
from ckh.ops.gemm_multi_d.pool import POOLS, multi_d_rule_key
from ckh.ops.gemm_multi_d.problem import FUNCTIONS, GemmMultiDProblem
from ckh.ops.gemm_universal.derived import GEMM, derived

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.ops.gemm_multi_d.kernel import GemmMultiDKernel

_DERIVED = derived(
    __name__,
    "matrix products with bias, residual, scale or activation",
    GemmMultiDProblem,
    POOLS,
    GEMM_MULTI_D,
    {
        "function": "function of the epilogue: " + ", ".join(FUNCTIONS),
        "ds": "tensors of the epilogue: r a row-major M x N matrix, v a vector of N",
    },
)


def _mismatch(kernel: GemmMultiDKernel, problem: GemmMultiDProblem) -> str:
    is_same = (kernel.function, kernel.num_d) == (problem.function, problem.num_d)
    other = f"a kernel of {kernel.function} with {kernel.num_d} tensors on {problem.canonical()}"
    return str(GEMM.kernels.mismatch(kernel, problem)) or ("" if is_same else other)


def _computes(function: str) -> Callable[[GemmMultiDProblem], bool]:
    return lambda problem: problem.function == function


def _place(problem: GemmMultiDProblem) -> list[float]:
    """`gemm_universal`'s point, and one axis for each function."""
    return [*GEMM.problems.place(problem), *(4.0 * (problem.function == name) for name in FUNCTIONS)]


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        slices={**GEMM.problems.slices, "function": {name: _computes(name) for name in FUNCTIONS}},
        place=_place,
    ),
    kernels=replace(_DERIVED.kernels, mismatch=_mismatch, key_of=multi_d_rule_key),
)
