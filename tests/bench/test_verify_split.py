"""Verification of sums of rounded parts: any order of additions is right, a wrong kernel is detected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckh.archs import load_arch
from ckh.bench.computation import Split, computation_of
from ckh.bench.isolated.typed import ElementType, element_type
from ckh.bench.isolated.verify import Limits
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[Any]

SIDE = 128
TILE = 64
# Conversion to a dtype: to nearest, as MI300 adds fp16, or truncated, as in CK Tile's conversion to bf16.
ROUNDINGS = {
    "fp16": ("fp16", "rounded"),
    "bf16": ("bf16", "rounded"),
    "bf16 cut off": ("bf16", "truncated"),
    "fp32": ("fp32", "rounded"),
}
NARROW = [name for name in ROUNDINGS if name != "fp32"]
# K and the number of parts.
SPLITS = [(8, 2), (64, 2), (512, 4), (512, 16), (2048, 32), (4096, 128)]


class Product:
    """A matrix product of random operands with split K, and the results of an emulated kernel."""

    def __init__(self, rounding: str, k: int, parts: int) -> None:
        dtype, how = ROUNDINGS[rounding]
        self.problem = GemmProblem(SIDE, SIDE, k, split_k=parts, dtype=dtype, layout="rcr")
        self.split = Split(parts)
        self.element: ElementType = element_type(dtype)
        self.store: Callable[[Array], Array] = getattr(self.element, how)
        self.random = np.random.default_rng(k + parts)
        stored = [self.element.operand(self.random.uniform(-1, 1, (SIDE, k)).astype(np.float32)) for _ in "ab"]
        a, b = (self.element.widened(item) for item in stored)
        # Each part is summed in float32, by BLAS.
        self.parts = np.stack([x @ y.T for x, y in zip(np.split(a, parts, 1), np.split(b, parts, 1), strict=True)])
        self.limits = Limits(self.problem, *stored)

    def added(self, parts: Array) -> Array:
        """Result of rounded atomic additions of parts, in a different order for every element."""
        numbers = self.element.widened(self.store(parts))
        order = self.random.random(numbers.shape).argsort(axis=0)
        total = np.zeros(numbers.shape[1:], np.float32)
        for item in np.take_along_axis(numbers, order, 0):
            total = self.element.widened(self.store(total + item))
        return self.store(total)

    def with_tile(self, change: Callable[[Array], Array]) -> Array:
        """Result of a kernel that changes the parts in one workgroup's tile."""
        parts = self.parts.copy()
        parts[:, :TILE, TILE:] = change(parts[:, :TILE, TILE:])
        return self.added(parts)

    def complaint(self, result: Array) -> str:
        """Verification of a kernel that rounds its parts."""
        return self.limits.complaint(result, self.split)


def first_missing(parts: Array) -> Array:
    """The first part is missing."""
    return np.concatenate((np.zeros_like(parts[:1]), parts[1:]))


def first_twice(parts: Array) -> Array:
    """The first part is added twice."""
    return np.concatenate((2 * parts[:1], parts[1:]))


@pytest.mark.parametrize(("k", "parts"), SPLITS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_rounded_parts_in_any_order_are_right(rounding: str, k: int, parts: int) -> None:
    """For any order of the atomic additions, none of 3 x 16,384 sums of rounded parts is wrong."""
    product = Product(rounding, k, parts)
    results = [product.added(product.parts) for _ in range(3)]
    assert [product.complaint(result) for result in results] == [""] * 3
    if k >= 64 and parts > 2 and rounding != "fp32":
        assert (results[0] != results[1]).any()


@pytest.mark.parametrize("rounding", NARROW)
def test_rounded_parts_differ_from_a_single_rounding(rounding: str) -> None:
    """K = 512 in 4 parts: over a third of the right results are wrong for a kernel that rounds once."""
    product = Product(rounding, 512, 4)
    result = product.added(product.parts)
    for split in (Split(), Split(4, in_fp32=True)):
        complaint = product.limits.complaint(result, split)
        assert int(complaint.split()[0]) > SIDE * SIDE / 3
        assert product.limits.complaint(product.store(product.parts.sum(axis=0)), split) == ""


@pytest.mark.parametrize("rounding", NARROW)
def test_the_bound_is_tight(rounding: str) -> None:
    """The error of a right element is less than half of the limit: twice the errors are right, thirty times are not."""
    product = Product(rounding, 512, 8)
    exact = product.parts.sum(axis=0)
    error = product.element.widened(product.added(product.parts)) - exact
    assert product.complaint(product.store(exact + 2 * error)) == ""
    assert "outputs wrong" in product.complaint(product.store(exact + 30 * error))


@pytest.mark.parametrize("change", [first_missing, first_twice])
@pytest.mark.parametrize(
    ("rounding", "k", "parts"),
    [
        *(("fp16", k, parts) for k, parts in SPLITS),
        *((rounding, k, parts) for rounding in ("bf16", "bf16 cut off") for k, parts in SPLITS[:5]),
    ],
)
def test_a_part_missing_or_doubled_in_a_tile_is_detected(
    rounding: str, k: int, parts: int, change: Callable[[Array], Array]
) -> None:
    """A workgroup that did not add its part, or added it twice, makes the result wrong."""
    product = Product(rounding, k, parts)
    assert "outputs wrong" in product.complaint(product.with_tile(change))


@pytest.mark.parametrize(
    ("rounding", "parts"),
    [*(("fp16", parts) for parts in (2, 4, 8, 16)), *((name, parts) for name in NARROW[1:] for parts in (2, 4))],
)
def test_one_wrong_element_is_detected(rounding: str, parts: int) -> None:
    """A single element lacks a part of usual size, or has its neighbour's value."""
    product = Product(rounding, 512, parts)
    right = product.added(product.parts)
    row, column = (3, 5)
    usual = int(np.argsort(np.abs(product.parts[:, row, column]))[parts // 2])
    without = product.parts.copy()
    without[usual, row, column] = 0
    lacking, shifted = right.copy(), right.copy()
    lacking[row, column] = product.added(without)[row, column]
    shifted[row, column] = right[row, column + 1]
    for wrong in (lacking, shifted):
        expect_values(product.complaint(wrong), f"1 of {SIDE * SIDE}", f"{row * SIDE + column}: ")


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["bf16", "bf16 cut off"])
def test_aggregate_errors_are_detected(rounding: str) -> None:
    """One part of 64 missing everywhere, and zeros for 256 parts, are wrong though each element might be right."""
    product = Product(rounding, 4096, 64)
    expect_values(product.complaint(product.added(product.parts[1:])), "mean error", "0.128")
    longer = Product(rounding, 4096, 256)
    assert longer.complaint(longer.added(longer.parts)) == ""
    assert longer.complaint(np.zeros((SIDE, SIDE), longer.element.storage)) != ""


def test_limits_of_two_products_by_hand() -> None:
    """1 + 1 in two parts of fp16 may err by 6 half units of 1: three below 2, where 1.5 are rounded above it."""
    problem = GemmProblem(1, 1, 2, split_k=2, dtype="fp16", layout="rcr")
    ones = np.ones((1, 2), np.float16)
    limits = Limits(problem, ones, ones)
    above, below = 2.0**-9, 2.0**-10
    right = {2 + above: True, 2 + 3 * above: False, 2 - 3 * below: True, 2 - 4 * below: False}
    for value, is_right in right.items():
        assert (limits.complaint(np.array([[value]], np.float16), Split(2)) == "") is is_right, value
        assert limits.complaint(np.array([[value]], np.float16)) != ""


def test_parts_without_products_are_zero() -> None:
    """Products with zeros give exact zeros, in any number of parts."""
    problem = GemmProblem(1, 2, 64, split_k=4, dtype="fp16", layout="rcr")
    a, b = np.zeros((1, 64), np.float16), np.ones((2, 64), np.float16)
    limits = Limits(problem, a, b)
    assert limits.complaint(np.zeros((1, 2), np.float16), Split(4)) == ""
    assert limits.complaint(np.array([[0, 1e-4]], np.float16), Split(4)).startswith("1 of 2 outputs wrong")


def test_sums_of_integers_are_exact_in_any_number_of_parts() -> None:
    """int8 has no rounding: one more than the sum is wrong."""
    problem = GemmProblem(2, 3, 64, split_k=4, dtype="int8", layout="rcr")
    random = np.random.default_rng(0)
    a, b = (random.integers(-127, 128, (rows, 64)).astype(np.int8) for rows in (2, 3))
    limits, right = Limits(problem, a, b), a.astype(np.int32) @ b.astype(np.int32).T
    assert limits.complaint(right, Split(4)) == ""
    right[1, 2] += 1
    expect_values(limits.complaint(right, Split(4)), "1 of 6", 5)


@pytest.mark.parametrize("written", [np.nan, np.inf])
def test_nan_is_never_right(written: float) -> None:
    """NaN and infinity in sums of parts are detected."""
    product = Product("fp16", 512, 16)
    result = product.added(product.parts)
    result[7, 9] = written
    assert product.complaint(result).startswith(f"1 of {SIDE * SIDE} outputs wrong")


@pytest.mark.parametrize("rounding", NARROW)
def test_split_gradients_of_filters_are_float32_sums(rounding: str) -> None:
    """Parts of the pixels that are rounded before they are added are wrong in every order; added in float32, right.

    They are within the limits of rounded parts, which other operations have, unless a part is missing.
    """
    dtype, how = ROUNDINGS[rounding]
    problem = ConvProblem(
        Direction.BWD_WEIGHT, n=4, c=64, k=64, g=2, hi=12, wi=12, y=3, x=3, pad_h=1, pad_w=1, dtype=dtype
    )
    element, computation = element_type(dtype), computation_of(problem)
    random = np.random.default_rng(1)
    shapes = [operand.shape for operand in computation.operands(problem)[:2]]
    dy, x = (element.operand(random.uniform(-1, 1, shape).astype(np.float32)) for shape in shapes)
    parts = []
    for image in range(problem.n):
        only = np.zeros_like(dy)
        only[image] = dy[image]
        parts.append(computation.compute(problem, element.widened(only), element.widened(x)))
    store = getattr(element, how)
    limits = Limits(problem, dy, x)

    def added(order: list[int]) -> Array:
        total = np.zeros_like(parts[0])
        for number in order:
            total = element.widened(store(total + element.widened(store(parts[number]))))
        return np.asarray(store(total))

    kernel = replace(conv_pool(Direction.BWD_WEIGHT, load_arch("gfx942"), 2, dtype)[0], split_k=4)
    names = (kernel_name(kernel), kernel_name(replace(kernel, two_stage=True)))
    one_stage, two_stages = (computation.split(problem, name) for name in names)
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        assert "outputs wrong" in limits.complaint(added(order), one_stage)
        assert limits.complaint(added(order), Split(4)) == ""
    assert limits.complaint(np.asarray(store(np.sum(parts, axis=0))), two_stages) == ""
    assert "outputs wrong" in limits.complaint(added([0, 1, 2, 3]))
    assert "outputs wrong" in limits.complaint(added([0, 1, 3]), Split(4))
    assert "outputs wrong" in limits.complaint(added([0, 1, 2, 2, 3]), Split(4))


def test_a_convolution_splits_by_its_kernel() -> None:
    """The split is in the kernel's name, and must be as right as float32 sums; other names have none."""
    problem = ConvProblem(Direction.BWD_WEIGHT, n=1, c=64, k=64, g=1, hi=8, wi=8, y=3, x=3, dtype="fp16")
    kernel = conv_pool(Direction.BWD_WEIGHT, load_arch("gfx942"), 2, "fp16")[0]
    split = computation_of(problem).split
    assert split(problem, kernel_name(kernel)) == Split(1, in_fp32=True)
    for two_stage in (False, True):
        parts = split(problem, kernel_name(replace(kernel, split_k=4, two_stage=two_stage)))
        assert (parts, parts.repeats) == (Split(4, in_fp32=True), False)
    assert (split(problem, ""), split(problem, "my kernel"), Split().repeats) == (Split(), Split(), True)


def test_a_matrix_product_splits_by_the_problem() -> None:
    """GEMM kernels get the number of parts at launch, and add in the result's dtype."""
    problem = GemmProblem(8, 8, 512, split_k=16, dtype="fp16")
    assert computation_of(problem).split(problem, "") == Split(16)
