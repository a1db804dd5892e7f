"""Verification: errors within rounding are accepted, everything else is detected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckh.bench.computation import Split
from ckh.bench.isolated.typed import ElementType, element_type
from ckh.bench.isolated.verify import Limits, tolerance
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.refusals import expect_values

Array = NDArray[Any]


def matrices(pixels: int, channels: int, filters: int) -> tuple[ConvProblem, Array, Array]:
    """A 1x1 convolution as the product of matrices pixels x channels and channels x filters, with both."""
    p = ConvProblem(Direction.FORWARD, n=1, c=channels, k=filters, g=1, hi=1, wi=pixels, y=1, x=1)
    random = np.random.default_rng(channels)
    x = random.uniform(-1, 1, (pixels, channels)).astype(np.float32)
    w = random.uniform(-1, 1, (filters, channels)).astype(np.float32)
    return p, x, w


def limits_of(p: ConvProblem, x: Array, w: Array) -> Limits:
    return Limits(p, x.reshape(p.input_shape), w.reshape(p.weight_shape))


def exact_product(x: Array, w: Array) -> Array:
    product: Array = x.astype(np.float64) @ w.astype(np.float64).T
    return product


def one_by_one(x: Array, w: Array, order: Array) -> Array:
    """The product with every sum in float32, one product after the other, in a given order of the channels."""
    total = np.zeros((len(x), len(w)), np.float32)
    for channel in order:
        total += x[:, channel, None] * w[None, :, channel]
    return total


def test_sums_in_the_worst_order_are_accepted() -> None:
    """All positive products before all negative ones: the sum grows to thousands and returns."""
    p, x, w = matrices(1, 10_000, 1)
    limits = limits_of(p, x, w)
    order = np.argsort(-(x[0] * w[0]))
    assert limits.complaint(one_by_one(x, w, order)) == ""


def test_bounds_follow_the_tolerance() -> None:
    """Every element is right at 0.9 and wrong at 1.1 times the tolerance, on both sides."""
    p, x, w = matrices(23, 288, 17)
    limits = limits_of(p, x, w)
    exact = exact_product(x, w)
    margin = tolerance(p) * (np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)).T)
    for side in (-1, 1):
        assert limits.complaint((exact + 0.9 * side * margin).astype(np.float32)) == ""
        assert limits.complaint((exact + 1.1 * side * margin).astype(np.float32)).startswith("391 of 391 outputs wrong")


def test_tolerance_by_hand() -> None:
    """With sums of 9 products it is 16 + 3 roundings of float32."""
    p = ConvProblem(Direction.FORWARD, n=1, c=1, k=1, g=1, hi=5, wi=5, y=3, x=3)
    assert tolerance(p) == 19 / 16_777_216


def test_a_slightly_too_large_result_is_detected() -> None:
    """For positive products a relative error of 1e-5 is wrong everywhere, and of 1e-7 is rounding."""
    p, x, w = matrices(11, 100, 5)
    x, w = np.abs(x), np.abs(w)
    limits, exact = limits_of(p, x, w), exact_product(x, w)
    assert limits.complaint((exact * (1 + 1e-5)).astype(np.float32)).startswith("55 of 55 outputs wrong")
    assert limits.complaint((exact * (1 + 1e-7)).astype(np.float32)) == ""


def test_a_swapped_pair_is_detected() -> None:
    """Two swapped elements are two wrong elements."""
    p, x, w = matrices(10, 64, 10)
    result = exact_product(x, w).astype(np.float32).reshape(-1)
    result[[20, 21]] = result[[21, 20]]
    expect_values(limits_of(p, x, w).complaint(result), "2 of 100", "20: ")


@pytest.mark.parametrize(
    ("written", "end"), [(np.nan, "; 3 are NaN or were never written"), (np.inf, ""), (-np.inf, "")]
)
def test_nan_and_infinity_are_never_right(written: float, end: str) -> None:
    """NaN, the initial value of an output, and infinities are counted, NaN by its name."""
    p, x, w = matrices(10, 8, 10)
    result = exact_product(x, w).astype(np.float32)
    result[[2, 5, 9], [0, 1, 9]] = written
    complaint = limits_of(p, x, w).complaint(result)
    expect_values(complaint, "3 of 100", f"20: {written}")
    assert complaint.endswith(end)
    assert ("NaN" in complaint) is bool(end)


def test_complaint_in_full() -> None:
    """1*3 + 2*4 is 11 and not 12."""
    p = ConvProblem(Direction.FORWARD, n=1, c=2, k=1, g=1, hi=1, wi=1, y=1, x=1)
    limits = limits_of(p, np.array([1, 2], np.float32), np.array([3, 4], np.float32))
    assert limits.complaint(np.array([11], np.float32)) == ""
    expect_values(limits.complaint(np.array([12], np.float32)), "1 of 1", "0: 12", 11)


def test_element_without_products_must_be_zero() -> None:
    """Input pixels that a 1x1 filter of stride 2 skips have no gradient, not even a tiny one."""
    p = ConvProblem(Direction.BWD_DATA, n=1, c=1, k=1, g=1, hi=1, wi=4, y=1, x=1, stride_w=2)
    limits = Limits(p, np.full(p.output_shape, 2, np.float32), np.full(p.weight_shape, 3, np.float32))
    assert limits.complaint(np.array([6, 0, 6, -0.0], np.float32)) == ""
    complaint = limits.complaint(np.array([6, 0, 6, 1e-30], np.float32))
    expect_values(complaint, "1 of 4", "3: 1e-30", 0)


def test_the_last_of_many_elements_is_checked() -> None:
    """A result of several chunks is compared to its end."""
    p, x, w = matrices(70_001, 1, 2)
    result = exact_product(x, w).astype(np.float32)
    limits = limits_of(p, x, w)
    assert limits.complaint(result) == ""
    result[70_000, 1] += 0.5
    expect_values(limits.complaint(result), "1 of 140002", "140001: ")


@pytest.mark.parametrize("direction", list(Direction))
def test_every_direction_has_bounds_of_its_shape(direction: Direction) -> None:
    """Zeros are wrong wherever products are summed, in a result with the direction's number of elements."""
    p = ConvProblem(direction, n=1, c=6, k=4, g=2, hi=5, wi=5, y=3, x=3, pad_h=1, pad_w=1)
    shapes = {Direction.FORWARD: p.output_shape, Direction.BWD_DATA: p.input_shape}
    result_shape = shapes.get(direction, p.weight_shape)
    operands = [p.input_shape, p.weight_shape, p.output_shape]
    operands.remove(result_shape)
    if direction is not Direction.FORWARD:
        operands.reverse()  # the gradient is the first operand
    limits = Limits(p, *(np.ones(shape, np.float32) for shape in operands))
    size = int(np.prod(result_shape))
    assert limits.complaint(np.zeros(result_shape, np.float32)).startswith(f"{size} of {size} outputs wrong")


def narrow(
    dtype: str, pixels: int, channels: int, filters: int
) -> tuple[ConvProblem, ElementType, tuple[Array, Array], tuple[Array, Array]]:
    """A matrix product of a dtype: the problem, the type, the operands as stored and as float32."""
    p, x, w = matrices(pixels, channels, filters)
    element = element_type(dtype)
    stored = element.operand(x), element.operand(w)
    return replace(p, dtype=dtype), element, stored, (element.widened(stored[0]), element.widened(stored[1]))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("channels", [1, 2, 37, 1000, 10_000])
def test_sums_in_any_order_are_accepted(dtype: str, channels: int) -> None:
    """Summed in float32 forwards, backwards, at random or by BLAS, and rounded, for bf16 also truncated."""
    p, element, stored, (x, w) = narrow(dtype, 53, channels, 31)
    limits = limits_of(p, *stored)
    order = np.arange(channels)
    shuffled = np.random.default_rng(0).permutation(channels)
    sums = [one_by_one(x, w, chosen) for chosen in (order, order[::-1], shuffled)] + [x @ w.T]
    assert [limits.complaint(element.rounded(item)) for item in sums] == [""] * 4
    if element.truncated is not None:
        assert [limits.complaint(element.truncated(item)) for item in sums] == [""] * 4
    if channels > 2:
        assert (sums[0] != sums[1]).any()


@pytest.mark.parametrize(
    ("dtype", "channels"),
    [
        *(("fp32", n) for n in (1, 2, 37, 1000, 10_000)),
        *(("fp16", n) for n in (2, 37, 1000)),
        ("bf16", 2),
        ("bf16", 37),
    ],
)
def test_one_missing_product_is_detected(dtype: str, channels: int) -> None:
    """A product of usual size that is missing in one sum exceeds the rounding error."""
    p, element, stored, (x, w) = narrow(dtype, 13, channels, 7)
    sums = exact_product(x, w)
    products = np.abs(x[5] * w[3])
    usual = int(np.argsort(products)[channels // 2])
    sums[5, 3] -= float(x[5, usual]) * float(w[3, usual])
    complaint = limits_of(p, *stored).complaint(element.rounded(sums.astype(np.float32)))
    expect_values(complaint, "1 of 91", f"{5 * 7 + 3}: ")


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_product_missing_everywhere_is_detected_in_long_sums(dtype: str) -> None:
    """A kernel that omits the last of ten thousand channels has many elements with too large errors."""
    p, element, stored, (x, w) = narrow(dtype, 53, 10_000, 31)
    sums = (x[:, :-1] @ w[:, :-1].T).astype(np.float32)
    assert "outputs wrong" in limits_of(p, *stored).complaint(element.rounded(sums))


@pytest.mark.parametrize(("dtype", "unit"), [("fp16", 2.0**-10), ("bf16", 2.0**-7)])
def test_narrow_limits_are_the_numbers_next_to_the_sum(dtype: str, unit: float) -> None:
    """A sum between two numbers may become the nearer one, or for bf16 the one towards zero, and no other."""
    p = ConvProblem(Direction.FORWARD, n=1, c=2, k=1, g=1, hi=1, wi=1, y=1, x=1, dtype=dtype)
    element = element_type(dtype)
    # 1 * 1 + 0.75 * unit, whose neighbours are 1 and 1 + unit.
    a = element.operand(np.array([1, 0.75], np.float32))
    b = element.operand(np.array([1, unit], np.float32))
    limits = limits_of(p, a, b)
    right = {1 - unit / 2: False, 1.0: dtype == "bf16", 1 + unit: True, 1 + 2 * unit: False}
    for value, is_right in right.items():
        complaint = limits.complaint(element.rounded(np.array([value], np.float32)))
        assert (complaint == "") is is_right, value


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_result_below_the_normal_numbers_may_be_zero(sign: int) -> None:
    """2^-16 may be flushed in fp16, but not become its negative or the smallest normal number."""
    p = ConvProblem(Direction.FORWARD, n=1, c=1, k=1, g=1, hi=1, wi=1, y=1, x=1, dtype="fp16")
    limits = limits_of(p, np.array([sign * 2.0**-8], np.float16), np.array([2.0**-8], np.float16))
    for value, is_right in ((2.0**-16, True), (0.0, True), (-(2.0**-16), False), (2.0**-14, False)):
        assert (limits.complaint(np.array([sign * value], np.float16)) == "") is is_right


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_unwritten_narrow_results_are_detected(dtype: str) -> None:
    """The initial bytes of an output are NaN in every type."""
    p, element, stored, _ = narrow(dtype, 3, 4, 5)
    result = np.frombuffer(b"\xff" * 30, element.storage)
    complaint = limits_of(p, *stored).complaint(result)
    expect_values(complaint, "15 of 15", 15, "NaN")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_operands_that_are_not_finite_have_exact_results(value: float) -> None:
    """NaN and infinities are right where the reference has them, and wrong anywhere else."""
    p, x, w = matrices(13, 37, 7)
    x[2, 5] = value
    with np.errstate(invalid="ignore"):  # some BLAS report sums of infinities
        limits, right = limits_of(p, x, w), (x.astype(np.float64) @ w.T).astype(np.float32)
    assert limits.complaint(right) == ""
    for place, other in (((2, 3), 1.0), ((4, 3), np.nan), ((4, 3), np.inf), ((2, 3), -right[2, 3])):
        wrong = right.copy()
        wrong[place] = other
        is_nan = np.isnan(right[place]) and np.isnan(other)
        expect_values(limits.complaint(wrong), *(() if is_nan else ("1 of 91",)))


def test_one_nan_leaves_the_limits_of_split_sums() -> None:
    """Elements without NaN in their sums keep their limits."""
    p, x, w = matrices(13, 64, 7)
    p = replace(p, dtype="fp16")
    x, w = x.astype(np.float16), w.astype(np.float16)
    x[2, 5] = np.nan
    limits, right = limits_of(p, x, w), (x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float16)
    split = Split(4)
    assert limits.complaint(right, split) == ""
    right[4, 3] += 1
    expect_values(limits.complaint(right, split), "1 of 91")
