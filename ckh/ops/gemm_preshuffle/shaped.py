"""Shapes of this operation are its problems: other sources do not state in which order B is stored."""

from __future__ import annotations

from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from ckh.shapes.shaped import own_shapes

SHAPED = own_shapes(GemmPreshuffleProblem)
