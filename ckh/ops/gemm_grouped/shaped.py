"""Shapes of this operation are its problems: other sources do not state the rows of each group."""

from __future__ import annotations

from typing import Any

from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.shapes.shaped import Shaped


def _problem(shape: GemmGroupedProblem, _dtype: str) -> GemmGroupedProblem:
    return shape


def _shape(problem: GemmGroupedProblem) -> Any:
    return problem


SHAPED = Shaped(GemmGroupedProblem, _problem, _shape)
