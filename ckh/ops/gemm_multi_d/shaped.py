"""Shapes of this operation are its problems: other sources do not state what an epilogue reads."""

from __future__ import annotations

from typing import Any

from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.shapes.shaped import Shaped


def _problem(shape: GemmMultiDProblem, _dtype: str) -> GemmMultiDProblem:
    return shape


def _shape(problem: GemmMultiDProblem) -> Any:
    return problem


SHAPED = Shaped(GemmMultiDProblem, _problem, _shape)
