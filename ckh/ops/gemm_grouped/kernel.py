"""`GemmGroupedKernel`: a kernel with the parameters of `gemm_universal`'s, and its names.

Names are those of `GemmKernel` that begin with `gemm_grouped_`, as in CK Tile; those of AMD's tile engine, which begin
with `grouped_gemm_`, are parsed too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.gemm_grouped.problem import OP_TYPE
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.names import parser_of


@dataclass(frozen=True, slots=True, order=True)
class GemmGroupedKernel(GemmKernel):
    """A kernel that computes matrix products with separate M."""

    op_type = OP_TYPE

    @property
    def chooses_loop(self) -> bool:
        """True if one GPU function has the loops of all numbers of steps, and chooses among them when it runs."""
        return bool(self.persistent) or self.pipeline in DOUBLE_SMEM_PIPELINES


parse_grouped_kernel = parser_of(GemmGroupedKernel, r"(?:gemm_grouped|grouped_gemm)")
