"""Conversion of shapes to MIOpen's convolutions."""

from __future__ import annotations

from ckh.ops.grouped_conv.shaped import shape_of, sizes_of
from ckh.ops.miopen_conv.problem import MiopenProblem
from ckh.problems import Direction
from ckh.shapes.layers import Convolution
from ckh.shapes.shaped import Shaped


def _problem(shape: Convolution, dtype: str) -> MiopenProblem:
    variant = Direction(shape.variant or Direction.FORWARD)
    return MiopenProblem(variant=variant, **sizes_of(shape), dtype=shape.dtype or dtype, layout=shape.layout)


def _shape(problem: MiopenProblem) -> Convolution:
    return shape_of(problem, problem.layout)


SHAPED = Shaped(Convolution, _problem, _shape)
