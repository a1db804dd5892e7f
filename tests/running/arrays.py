"""Operands of convolutions and matrix products, and their results: the reference for `ckh.run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh import ConvProblem, Direction
from ckh.ops.grouped_conv.measuring.reference import convolve

if TYPE_CHECKING:
    from ckh import GemmProblem

Array = NDArray[Any]
SHAPES = {"x": "input_shape", "w": "weight_shape", "y": "output_shape", "a": "a_shape", "b": "b_shape"}
NAMES = {Direction.FORWARD: "xw", Direction.BWD_DATA: "yw", Direction.BWD_WEIGHT: "xy"}


def operands(problem: ConvProblem | GemmProblem, dtype: Any = np.float32, scale: float = 1.0) -> tuple[Array, Array]:
    """Whole numbers from -4 to 4 times a scale: sums of their products are exact in float32."""
    random = np.random.default_rng(7)
    names = NAMES[problem.variant] if isinstance(problem, ConvProblem) else "ab"
    first, second = (random.integers(-4, 5, getattr(problem, SHAPES[name])) * scale for name in names)
    return first.astype(dtype), second.astype(dtype)


def expected(problem: ConvProblem | GemmProblem, first: Array, second: Array) -> Array:
    """The result in float64, of convolutions by `convolve`, which `test_reference` compares with the definition."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    if not isinstance(problem, ConvProblem):
        return first @ second
    if problem.variant is Direction.BWD_WEIGHT:  # kernels take the gradient first
        first, second = second, first
    return convolve(problem, first, second)
