"""`GemmPreshuffleProblem`: a matrix product with a shuffled B, with complete identity.

The order of B is part of the problem, since weights are shuffled once for every M. It is written COLUMNSxBYTES: the
columns of a matrix instruction, and the bytes of K that a lane reads of one of them at once. B is stored as pieces of
that many bytes: first those of the same K of consecutive columns, then the pieces along K, then the next columns. 16x16
is the order of AITER's `shuffle_weight` with its default layout (16, 16), in every element type.

COLUMNSxBYTESpWAVESxREPEATS is the order for CK Tile's `TiledMMAPermuteN`: consecutive columns of B are in different
instructions of a wave, so that a lane holds consecutive columns of C.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GEMM_TEXTS, GemmProblem, K, M, N, Stated
from ckh.problems import DTYPE_BYTES

OP_TYPE = "gemm_preshuffle"
PRESHUFFLE, FLATMM = "preshufflev2", "flatmm"  # pipelines that read a shuffled B
DTYPES = ("fp16", "bf16", "fp8", "bf8")
LAYOUT = "rcr"
DEFAULT_ORDER = "16x16"

_ORDER = r"(?:16|32)x(?:8|16|32)(?:p[1-9][0-9]?x[1-9][0-9]?)?"


class StoredOrder(NamedTuple):
    """Order of a shuffled B."""

    columns: int  # columns of a matrix instruction
    bytes: int  # bytes of K that a lane reads of a column at once
    waves: int = 1  # waves of a block along N, if consecutive columns are in different instructions; otherwise 1
    repeats: int = 1  # instructions of a wave along N, likewise
    permutes_n: bool = False  # whether they are

    @classmethod
    def parsed(cls, text: str) -> StoredOrder:
        """Parse a text that `str` returns; `UsageError` for any other."""
        if not re.fullmatch(_ORDER, text):
            raise UsageError(
                f"b_order={text!r} is not an order of B",
                "COLUMNSxBYTES with 16 or 32 columns and 8, 16 or 32 bytes, optionally with pWAVESxREPEATS, e.g. "
                f"{DEFAULT_ORDER}",
                code="bad-problem",
            )
        plain, permutes, permuted = text.partition("p")
        columns, size, waves, repeats = map(int, f"{plain}x{permuted or '1x1'}".split("x"))
        return cls(columns, size, waves, repeats, bool(permutes))

    @property
    def group(self) -> int:
        """Columns that are shuffled among each other."""
        return self.columns * self.waves * self.repeats

    def elements(self, dtype: str) -> int:
        """Elements of K that a lane reads of a column at once."""
        return int(self.bytes // DTYPE_BYTES[dtype])

    def __str__(self) -> str:
        """Return the text of a problem's field."""
        permuted = f"p{self.waves}x{self.repeats}" if self.permutes_n else ""
        return f"{self.columns}x{self.bytes}{permuted}"


class GemmPreshuffleProblem(GemmProblem):
    """C (M x N) = A (M x K) x B (K x N), with B stored in the order `b_order`.

    Raises:
        UsageError: as `GemmProblem`, or the element type, the layout, the order or a split of K is not supported, or
            N or K is not a whole number of the order's pieces.
    """

    op_type = OP_TYPE
    prefix = f"{OP_TYPE}_"
    noun = "a GEMM with a shuffled B"
    example = f"fp16_rcr_m16_n4096_k4096_b{DEFAULT_ORDER}"
    stated = (M, N, K, Stated("b_order", "b", "[0-9xp]+"))
    text_columns = (*GEMM_TEXTS, "b_order")
    dtypes = DTYPES
    whole_k = "K of a shuffled B is not split"

    b_order: str = DEFAULT_ORDER

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout != LAYOUT:
            raise UsageError(
                f"layout={self.layout}: kernels with a shuffled B have the layout {LAYOUT}", code="out-of-range"
            )
        order = self.stored_order
        for axis, size, step in (("n", self.n, order.group), ("k", self.k, order.elements(self.dtype))):
            if size % step:
                raise UsageError(
                    f"{axis}={size} is not a multiple of {step}, which b_order={self.b_order} in {self.dtype} needs",
                    "choose another b_order, or pad B",
                    code="indivisible",
                )

    @property
    def stored_order(self) -> StoredOrder:
        """Parsed order of B."""
        return StoredOrder.parsed(self.b_order)

    @property
    def permute_n(self) -> bool:
        """True if the order of B is that of kernels that permute N (CK Tile's `TiledMMAPermuteN`)."""
        return self.stored_order.permutes_n
