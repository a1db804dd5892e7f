"""Sums of products as loops, and the factors of single elements, against the references of the operations."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh import ConvProblem, Direction, GemmProblem
from ckh.bench.computation import BEFORE, SPATIAL, computation_of
from ckh.bench.isolated.operands import drawn, tensor_of
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem

if TYPE_CHECKING:
    from ckh.bench.computation import Contraction

CONV = ConvProblem(
    *(Direction.FORWARD, 2, 6, 4, 2, 7, 6, 3, 2),
    stride_h=2,
    stride_w=3,
    pad_h=2,
    pad_w=1,
    dilation_h=2,
    dilation_w=1,
)
DEEP = CONV.replaced(ndim=3, layout="", di=4, z=2, stride_d=2, pad_d=1, dilation_d=3)
GAPS: dict[str, Any] = {
    "lda": 9,
    "ldb": 11,
    "ldc": 12,
    "batch_stride_a": 60,
    "batch_stride_b": 80,
    "batch_stride_c": 70,
}
PROBLEMS = [
    *(GemmProblem(5, 3, 4, layout=layout) for layout in ("rrr", "rcr", "ccr", "crr")),
    *(GemmBatchedProblem(5, 6, 4, layout=layout, batch=3, **GAPS) for layout in ("rrr", "ccr")),
    *(GemmGroupedProblem(ms="4+2x2+0", n=3, k=5, layout=layout) for layout in ("rcr", "crr")),
    GemmMultiDProblem(5, 4, 3, "fp16", function="add", ds="vr"),
    *(problem.replaced(variant=direction) for problem in (CONV, DEEP) for direction in Direction),
]


def sums_of(contraction: Contraction, a: np.ndarray, b: np.ndarray, sums: np.ndarray) -> None:
    """Sum element by element and product by product, as the structure says."""
    c = contraction
    for number, at in enumerate(np.ndindex(*c.size)):
        total = 0.0
        for term in product(*map(range, c.terms)):
            met = [c.times[j] * at[BEFORE + j] + c.ahead[j] * term[j] + c.offset[j] for j in range(SPATIAL)]
            if any(m % d or not 0 <= m // d < most for m, d, most in zip(met, c.divisor, c.limit, strict=True)):
                continue
            places = [m // d for m, d in zip(met, c.divisor, strict=True)]
            from_a = c.first_a + np.dot(at, c.a) + np.dot(term, c.terms_a) + np.dot(places, c.met_a)
            from_b = c.first_b + np.dot(at, c.b) + np.dot(term, c.terms_b) + np.dot(places, c.met_b)
            total += a[from_a] * b[from_b]
        sums[c.first + number] = total


def prepared(problem: Any) -> tuple[Any, ...]:
    """Computation, A and B as stored and as tensors, in float64."""
    computation = computation_of(problem)
    operands, _ = computation.operands_of(problem)
    random = np.random.Generator(np.random.PCG64(1))
    stored = [drawn(operand, random, fnuz_floats=False).astype(np.float64) for operand in operands[:2]]
    tensors = [tensor_of(operand, values) for operand, values in zip(operands[:2], stored, strict=True)]
    return computation, *stored, *tensors


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.canonical())
def test_loops_and_factors_give_the_sums_of_the_reference(problem: Any) -> None:
    """All layouts, gaps, groups, and directions with strides, paddings and dilations that differ by axis."""
    computation, a, b, left, right = prepared(problem)
    reference = computation.compute(problem, left, right)
    sums = np.full(reference.size, np.nan)
    for contraction in computation.contractions(problem):
        sums_of(contraction, a.reshape(-1), b.reshape(-1), sums)
    np.testing.assert_allclose(sums, reference.reshape(-1), rtol=1e-13, atol=1e-13)
    for index in np.ndindex(*reference.shape):
        x, y = computation.factors(problem, index, left, right)
        assert x.shape == y.shape
        assert np.sum(x * y) == pytest.approx(reference[index], rel=1e-13, abs=1e-13)
