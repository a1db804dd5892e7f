"""Conversion of shapes to matrix products."""

from __future__ import annotations

from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.shapes.layers import Matmul
from ckh.shapes.shaped import Shaped


def _problem(shape: Matmul, dtype: str) -> GemmProblem:
    return GemmProblem(shape.m, shape.n, shape.k, shape.dtype or dtype, shape.layout)


def _shape(problem: GemmProblem) -> Matmul:
    return Matmul(problem.m, problem.n, problem.k, problem.dtype, problem.layout)


def _is_plain(shape: Matmul) -> bool:
    """True if the operands have no scales, which this operation's kernels do not read."""
    return not shape.scaling


SHAPED = Shaped(Matmul, _problem, _shape, prefers=_is_plain)
