"""Shapes of this operation are its problems: other sources do not state what an epilogue reads."""

from __future__ import annotations

from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.shapes.shaped import own_shapes

SHAPED = own_shapes(GemmMultiDProblem)
