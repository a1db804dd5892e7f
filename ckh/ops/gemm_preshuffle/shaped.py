"""Shapes of this operation are its problems: other sources do not state in which order B is stored."""

from __future__ import annotations

from typing import Any

from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from ckh.shapes.shaped import Shaped


def _problem(shape: GemmPreshuffleProblem, _dtype: str) -> GemmPreshuffleProblem:
    return shape


def _shape(problem: GemmPreshuffleProblem) -> Any:
    return problem


SHAPED = Shaped(GemmPreshuffleProblem, _problem, _shape)
