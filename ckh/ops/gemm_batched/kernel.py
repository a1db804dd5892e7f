"""`GemmBatchedKernel`: a kernel with the parameters of `gemm_universal`'s, and its names.

Names are those of `GemmKernel` that begin with `gemm_batched_`, as in CK Tile; those of AMD's tile engine, which begin
with `batched_gemm_`, are parsed too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckh.ops.gemm_batched.problem import OP_TYPE
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.names import parser_of


@dataclass(frozen=True, slots=True, order=True)
class GemmBatchedKernel(GemmKernel):
    """A kernel that computes a batch of matrix products."""

    op_type = OP_TYPE


parse_batched_kernel = parser_of(GemmBatchedKernel, r"(?:gemm_batched|batched_gemm)")
