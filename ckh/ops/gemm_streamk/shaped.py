"""Shapes of this operation are its problems: which products share tiles is a choice that other sources do not state."""

from __future__ import annotations

from typing import Any

from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.shapes.shaped import Shaped


def _problem(shape: GemmStreamKProblem, _dtype: str) -> GemmStreamKProblem:
    return shape


def _shape(problem: GemmStreamKProblem) -> Any:
    return problem


SHAPED = Shaped(GemmStreamKProblem, _problem, _shape)
