"""Convolutions and matrix products by einsum, one tap at a time: the reference for `ckh.run`."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh import ConvProblem, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh import GemmProblem

Array = NDArray[Any]
SHAPES = {"x": "input_shape", "w": "weight_shape", "y": "output_shape", "a": "a_shape", "b": "b_shape"}
NAMES = {Direction.FORWARD: ("x", "w"), Direction.BWD_DATA: ("y", "w"), Direction.BWD_WEIGHT: ("x", "y")}


def operands(problem: ConvProblem | GemmProblem, dtype: Any = np.float32, scale: float = 1.0) -> tuple[Array, Array]:
    """Whole numbers from -4 to 4 times a scale: sums of their products are exact in float32."""
    random = np.random.default_rng(7)
    names = NAMES[problem.variant] if isinstance(problem, ConvProblem) else ("a", "b")
    first, second = (random.integers(-4, 5, getattr(problem, SHAPES[name])) * scale for name in names)
    return first.astype(dtype), second.astype(dtype)


def expected(problem: ConvProblem | GemmProblem, first: Array, second: Array) -> Array:
    """The result in float64."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    if not isinstance(problem, ConvProblem):
        return first @ second
    if problem.variant is Direction.FORWARD:
        padded, y = _padded(problem, first), np.zeros(problem.output_shape)
        for tap, pixels in _taps(problem):
            y += np.einsum("n...gc,gkc->n...gk", padded[pixels], second[_at(tap)])
        return y
    if problem.variant is Direction.BWD_DATA:
        padded = _padded(problem, np.zeros(problem.input_shape))
        for tap, pixels in _taps(problem):
            padded[pixels] += np.einsum("n...gk,gkc->n...gc", first, second[_at(tap)])
        return padded[_inside(problem)]
    padded, dw = _padded(problem, first), np.zeros(problem.weight_shape)
    for tap, pixels in _taps(problem):
        x = padded[pixels].reshape(-1, problem.g, problem.c_per_group)
        dy = second.reshape(-1, problem.g, problem.k_per_group)
        dw[_at(tap)] = np.einsum("pgc,pgk->gkc", x, dy)
    return dw


def _at(tap: tuple[int, ...]) -> Any:
    """The index of a tap's weights, for all groups and output channels."""
    return (slice(None), slice(None), *tap)


def _axes(problem: ConvProblem) -> str:
    return "dhw"[3 - problem.ndim :]


def _padded(problem: ConvProblem, x: Array) -> Array:
    pads = [(getattr(problem, f"pad_{axis}"),) * 2 for axis in _axes(problem)]
    return np.pad(x, [(0, 0), *pads, (0, 0), (0, 0)])


def _inside(problem: ConvProblem) -> tuple[slice, ...]:
    starts = [getattr(problem, f"pad_{axis}") for axis in _axes(problem)]
    sizes = problem.input_shape[1:-2]
    return (slice(None), *(slice(start, start + size) for start, size in zip(starts, sizes, strict=True)))


def _taps(problem: ConvProblem) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Every tap, and its pixels of the padded input."""
    axes = _axes(problem)
    outputs = problem.output_shape[1:-2]
    for tap in product(*map(range, problem.weight_shape[2:-1])):
        pixels = [slice(None)]
        for axis, at, size in zip(axes, tap, outputs, strict=True):
            start, stride = at * getattr(problem, f"dilation_{axis}"), getattr(problem, f"stride_{axis}")
            pixels.append(slice(start, start + (size - 1) * stride + 1, stride))
        yield tap, tuple(pixels)
