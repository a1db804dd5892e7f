"""`GemmStreamKProblem`: a matrix product of `gemm_universal`, whose split of K is the kernel's choice."""

from __future__ import annotations

from ckh.ops.gemm_universal.problem import GemmProblem, K, M, N

OP_TYPE = "gemm_streamk"
PREFIX = f"{OP_TYPE}_"


class GemmStreamKProblem(GemmProblem):
    """C (M x N) = A (M x K) x B (K x N).

    Raises:
        UsageError: as `GemmProblem`, or a split of K is stated.
    """

    op_type = OP_TYPE
    prefix = PREFIX
    noun = "a Stream-K GEMM problem"
    example = "fp16_rcr_m512_n512_k65536"
    stated = (M, N, K)
    whole_k = "Stream-K kernels split K themselves"
