"""`GemmMultiDProblem`: a matrix product whose epilogue reads further tensors, with complete identity."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GEMM_TEXTS, GemmProblem, K, M, N, Stated, output_dtype
from ckh.problems import DTYPE_BYTES
from ckh.text.prose import one_of

OP_TYPE = "gemm_multi_d"
PREFIX = f"{OP_TYPE}_"
MAX_TENSORS = 2
MATRIX, VECTOR = "r", "v"  # kinds of further tensors: M x N, row-major; N, added to or multiplied with every row


class EpilogueFunction(NamedTuple):
    """A function of an epilogue: C and the further tensors are added or multiplied, then passed to an activation."""

    multiplies: bool  # whether they are multiplied; otherwise they are added
    activation: str  # name of the activation; empty: none
    summary: str  # what it computes


# CK Tile's tile engine has the first two.
FUNCTIONS: dict[str, EpilogueFunction] = {
    "add": EpilogueFunction(multiplies=False, activation="", summary="sum of C and the tensors"),
    "mul": EpilogueFunction(multiplies=True, activation="", summary="product of C and the tensors"),
    "add_relu": EpilogueFunction(multiplies=False, activation="relu", summary="ReLU of the sum"),
    "add_gelu": EpilogueFunction(multiplies=False, activation="gelu", summary="GELU (tanh form) of the sum"),
    "add_silu": EpilogueFunction(multiplies=False, activation="silu", summary="SiLU of the sum"),
}
DTYPES = ("fp16", "bf16", "fp32", "fp8", "bf8")


class GemmMultiDProblem(GemmProblem):
    """E (M x N) = function(A (M x K) x B (K x N), D_0, D_1).

    `ds` has a letter for each further tensor: r for a row-major M x N matrix, v for a vector of N. They have the
    element type of E.

    Raises:
        UsageError: as `GemmProblem`, or the function, the tensors or a split of K are not supported.
    """

    op_type = OP_TYPE
    prefix = PREFIX
    noun = "a GEMM with further tensors"
    example = "fp16_rcr_m16_n4096_k4096_add_relu_vr"
    stated = (M, N, K, Stated("function", "", "[a-z_]+"), Stated("ds", "", f"[{MATRIX}{VECTOR}]+"))
    text_columns = (*GEMM_TEXTS, "function", "ds")
    dtypes = DTYPES
    whole_k = "the epilogue needs whole sums"

    function: str = "add"
    ds: str = VECTOR

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.function not in FUNCTIONS:
            raise UsageError(
                f"unknown function {self.function!r}", one_of(self.function, FUNCTIONS), code="unknown-name"
            )
        if not re.fullmatch(f"[{MATRIX}{VECTOR}]{{1,{MAX_TENSORS}}}", self.ds):
            raise UsageError(
                f"ds={self.ds!r} does not state 1 to {MAX_TENSORS} tensors",
                "a letter each: r for a matrix M x N, v for a vector of N, e.g. vr for bias and residual",
                code="bad-problem",
            )

    @property
    def num_d(self) -> int:
        """Number of further tensors."""
        return len(self.ds)

    @property
    def d_bytes(self) -> int:
        """Bytes of the further tensors."""
        elements = sum(self.n if kind == VECTOR else self.m * self.n for kind in self.ds)
        return math.ceil(elements * DTYPE_BYTES[output_dtype(self.dtype)])

    @property
    def bytes(self) -> int:
        """Bytes of all tensors, the minimum to move."""
        return super().bytes + self.d_bytes
