"""`GemmMultiDProblem`: a matrix product whose epilogue reads further tensors, with complete identity."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS, GEMM_TEXTS, GemmProblem, output_dtype
from ckh.problems import DTYPE_BYTES
from ckh.text.prose import one_of

OP_TYPE = "gemm_multi_d"
PREFIX = "gemm_multi_d_"
MAX_TENSORS = 2
MATRIX, VECTOR = "r", "v"  # kinds of further tensors: M x N, row-major; N, added to or multiplied with every row


class EpilogueFunction(NamedTuple):
    """A function of an epilogue: C and the further tensors are added or multiplied, then passed to an activation.

    Attributes:
        multiplies: whether they are multiplied; otherwise they are added.
        activation: name of the activation; empty: none.
        summary: what it computes.
    """

    multiplies: bool
    activation: str
    summary: str


# CK Tile's tile engine has the first two.
FUNCTIONS: dict[str, EpilogueFunction] = {
    "add": EpilogueFunction(multiplies=False, activation="", summary="sum of C and the tensors"),
    "mul": EpilogueFunction(multiplies=True, activation="", summary="product of C and the tensors"),
    "add_relu": EpilogueFunction(multiplies=False, activation="relu", summary="ReLU of the sum"),
    "add_gelu": EpilogueFunction(multiplies=False, activation="gelu", summary="GELU (tanh form) of the sum"),
    "add_silu": EpilogueFunction(multiplies=False, activation="silu", summary="SiLU of the sum"),
}
MULTI_D_TEXTS: tuple[str, ...] = (*GEMM_TEXTS, "function", "ds")
# Complete identity of a problem.
MULTI_D_IDENTITY: tuple[str, ...] = (*MULTI_D_TEXTS, *GEMM_COLUMNS)

DTYPES = ("fp16", "bf16", "fp32", "fp8", "bf8")
_CANONICAL = (
    rf"{PREFIX}(?P<dtype>[a-z0-9]+)_(?P<layout>[rc]{{3}})_m(?P<m>[0-9]{{1,10}})_n(?P<n>[0-9]{{1,10}})"
    rf"_k(?P<k>[0-9]{{1,10}})_(?P<function>[a-z_]+)_(?P<ds>[{MATRIX}{VECTOR}]+)"
)


class GemmMultiDProblem(GemmProblem):
    """E (M x N) = function(A (M x K) x B (K x N), D_0, D_1).

    `ds` has a letter for each further tensor: r for a row-major M x N matrix, v for a vector of N. They have the
    element type of E.

    Raises:
        UsageError: as `GemmProblem`, or the function, the tensors or a split of K are not supported.
    """

    text_columns = MULTI_D_TEXTS

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
        if self.split_k != 1:
            raise UsageError(
                f"split_k={self.split_k}: the epilogue needs whole sums", "omit split_k", code="out-of-range"
            )
        if self.dtype not in DTYPES:
            raise UsageError(
                f"{OP_TYPE} has no kernels of {self.dtype}", "one of " + ", ".join(DTYPES), code="unknown-dtype"
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

    def canonical(self) -> str:
        """Text that holds the complete identity; `parse_multi_d_problem` parses it."""
        return f"{PREFIX}{self.dtype}_{self.layout}_m{self.m}_n{self.n}_k{self.k}_{self.function}_{self.ds}"


def parse_multi_d_problem(text: str) -> GemmMultiDProblem:
    """Parse the text that `GemmMultiDProblem.canonical` returns.

    Raises:
        UsageError: the text is malformed, or its sizes are invalid.
    """
    match = re.fullmatch(_CANONICAL, text.strip())
    if match is None:
        raise UsageError(
            f"not a GEMM with further tensors: {text!r}",
            f"e.g. {PREFIX}fp16_rcr_m16_n4096_k4096_add_relu_vr",
            code="bad-problem",
        )
    fields: dict[str, Any] = {name: int(match[name]) for name in "mnk"}
    return GemmMultiDProblem(**fields | {name: match[name] for name in MULTI_D_TEXTS})
