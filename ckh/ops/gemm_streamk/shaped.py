"""Shapes of this operation are its problems: which products share tiles is a choice that other sources do not state."""

from __future__ import annotations

from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.shapes.shaped import own_shapes

SHAPED = own_shapes(GemmStreamKProblem)
