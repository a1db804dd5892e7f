"""Shapes of this operation are its problems: other sources do not state the rows of each group."""

from __future__ import annotations

from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.shapes.shaped import own_shapes

SHAPED = own_shapes(GemmGroupedProblem)
