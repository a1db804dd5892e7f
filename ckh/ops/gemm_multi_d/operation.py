"""Record of the operation `gemm_multi_d`: that of `gemm_universal`, for each function of an epilogue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.ops.base import having
from ckh.ops.gemm_multi_d.pool import POOLS, multi_d_rule_key
from ckh.ops.gemm_multi_d.problem import FUNCTIONS, MATRIX, OP_TYPE, VECTOR, GemmMultiDProblem
from ckh.ops.gemm_universal.derived import GEMM, derived
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL

if TYPE_CHECKING:
    from ckh.features.engine import Columns
    from ckh.ops.gemm_multi_d.pool import GemmMultiDKernel

_CODES = {name: float(code) for code, name in enumerate(FUNCTIONS)}


def _count(c: Columns, kind: str) -> Any:
    return np.char.count(c.raw("ds").astype(str), kind).astype(float)


def _d_elements(c: Columns) -> Any:
    return _count(c, MATRIX) * c["m"] * c["n"] + _count(c, VECTOR) * c["n"]


_FEATURES = (
    Feature("d_matrices", "", lambda c: _count(c, MATRIX)),
    Feature("d_vectors", "", lambda c: _count(c, VECTOR)),
    Feature("d_elements_per_flop", "", lambda c: _d_elements(c) / np.maximum(2.0 * c["m"] * c["n"] * c["k"], 1.0)),
    Feature("function", "category", lambda c: c.codes("function", _CODES, 0.0)),
)

GEMM_MULTI_D = GEMM_UNIVERSAL.extended(OP_TYPE, _FEATURES, categorical=("function",))

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


def _place(problem: GemmMultiDProblem) -> list[float]:
    """`gemm_universal`'s point, and one axis for each function."""
    return [*GEMM.problems.place(problem), *(4.0 * (problem.function == name) for name in FUNCTIONS)]


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        slices={**GEMM.problems.slices, "function": {name: having("function", name) for name in FUNCTIONS}},
        place=_place,
    ),
    kernels=replace(_DERIVED.kernels, mismatch=_mismatch, key_of=multi_d_rule_key),
)
