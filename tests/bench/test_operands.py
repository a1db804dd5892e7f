"""Operands in memory: strides, stored order, roles, and limits of results with an epilogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckh.bench.computation import Computation, Operand, Role, Split
from ckh.bench.isolated import verify
from ckh.bench.isolated.operands import drawn, gaps_of, laid_out, overwritten, stored_shape, tensor_of
from ckh.bench.isolated.typed import element_type
from ckh.bench.isolated.verify import Limits
from ckh.ops.gemm_universal.measuring.measured import c_problem
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.refusals import expect_values

ROWS = Operand("a", (3, 4), "fp32", strides=(6, 1))
PROBLEM = GemmProblem(5, 7, 64, "fp16", "rrr")


def random() -> np.random.Generator:
    """The same numbers each time."""
    return np.random.default_rng(7)


def test_strided_rows_leave_gaps_of_nan() -> None:
    """Three rows of four, six elements apart: 16 elements, of which 4 are between the rows."""
    stored = drawn(ROWS, random(), fnuz_floats=False)
    assert stored.shape == stored_shape(ROWS) == (16,)
    assert np.flatnonzero(np.isnan(stored)).tolist() == np.flatnonzero(gaps_of(ROWS)).tolist() == [4, 5, 10, 11]
    assert tensor_of(ROWS, stored).tolist() == [stored[6 * row : 6 * row + 4].tolist() for row in range(3)]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8", "int8"])
def test_tensors_are_laid_out_by_strides(dtype: str) -> None:
    """The tensor of the stored elements is the dense one, for every type."""
    operand = Operand("a", (2, 3, 4), dtype, strides=(20, 5, 1))
    dense = Operand("a", (2, 3, 4), dtype)
    values = drawn(dense, random(), fnuz_floats=False)
    stored = laid_out(operand, values, fnuz_floats=False)
    assert stored.shape == (1 + 20 + 10 + 3,)
    assert tensor_of(operand, stored).tolist() == values.tolist()
    assert laid_out(dense, values, fnuz_floats=False) is values


def test_a_stride_of_zero_repeats_elements() -> None:
    """Every matrix of the batch is the same one."""
    operand = Operand("b", (5, 2, 3), "fp16", strides=(0, 3, 1))
    stored = drawn(operand, random(), fnuz_floats=False)
    assert stored.shape == (6,)
    assert tensor_of(operand, stored).tolist() == [stored.reshape(2, 3).tolist()] * 5


def test_writes_between_rows_are_counted() -> None:
    """Only those elements of a result whose bits changed."""
    element = element_type("fp32")
    stored = np.full(16, np.nan, np.float32)
    stored.view(np.uint8)[:] = element.unwritten_byte
    tensor_of(ROWS, stored)[...] = 1
    assert overwritten(ROWS, stored, element) == 0
    stored[[4, 11]] = 0
    assert overwritten(ROWS, stored, element) == 2
    assert overwritten(Operand("c", (16,), "fp32"), stored, element) == 0


def test_random_scales_are_positive() -> None:
    """From 1/2 to 2, so that results are neither tiny nor huge."""
    scales = drawn(Operand("scale", (1000,), "fp32", Role.SCALE), random(), fnuz_floats=False)
    assert 0.5 <= scales.min() < 0.51
    assert 1.96 < scales.max() <= 2


def scaled_with_bias(problem: GemmProblem) -> tuple[Operand, ...]:
    """A, B, a scale per row, a bias per column, and C."""
    return (
        Operand("a", (problem.m, problem.k), problem.dtype),
        Operand("b", (problem.k, problem.n), problem.dtype),
        Operand("scale", (problem.m, 1), "fp32", Role.SCALE),
        Operand("bias", (problem.n,), "bf16", Role.BIAS),
        Operand("c", (problem.m, problem.n), problem.dtype, Role.OUTPUT),
    )


def relu(problem: GemmProblem, bounds: Any, biases: Any) -> Any:
    """The larger of zero and the sum with the bias."""
    (bias,) = biases
    low, high = (np.maximum(each.reshape(problem.m, problem.n) + bias, 0).reshape(-1) for each in bounds)
    return low, high


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> tuple[Limits, np.ndarray]:
    """Limits of a scaled product with bias and ReLU, and its right result in double precision."""
    computation = Computation(
        operands=scaled_with_bias,
        compute=lambda _problem, a, b, scale: (a @ b) * scale,
        reduction_length=lambda problem: problem.k,
        dtypes=("fp16",),
        c_problem=c_problem,
        split=lambda *_: Split(),
        finish=relu,
    )
    monkeypatch.setattr(verify, "computation_of", lambda _problem: computation)
    generator = random()
    *inputs, _ = scaled_with_bias(PROBLEM)
    stored = [drawn(operand, generator, fnuz_floats=False) for operand in inputs]
    a, b, scale, bias = (
        element_type(operand.dtype).widened(values).astype(np.float64)
        for operand, values in zip(inputs, stored, strict=True)
    )
    return Limits(PROBLEM, *stored), np.maximum((a @ b) * scale + bias, 0)


def test_limits_include_scales_biases_and_the_epilogue(limits: tuple[Limits, np.ndarray]) -> None:
    """The right result passes; about half of its elements are exactly zero."""
    result, right = limits
    assert 8 < np.count_nonzero(right == 0) < 27
    assert result.complaint(right.astype(np.float16)) == ""


@pytest.mark.parametrize("wrong", ["bias", "negative", "scale"])
def test_a_wrong_epilogue_is_found(limits: tuple[Limits, np.ndarray], wrong: str) -> None:
    """A missing bias of one element, a negative element that ReLU forgot, a scale that is off by one in a hundred."""
    result, right = limits
    off = right.copy()
    place = np.unravel_index(np.argmax(right), right.shape)
    if wrong == "negative":
        place = np.unravel_index(np.argmin(right), right.shape)
    off[place] = {"bias": off[place] - 0.1, "negative": -0.01, "scale": off[place] * 1.01}[wrong]
    expect_values(result.complaint(off.astype(np.float16)), "1 of 35")
