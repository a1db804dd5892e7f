"""`GemmProblem`: one matrix product, with complete identity.

Two problems are equal only if all fields are equal: times of different layouts, dtypes or splits of K are never
compared.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ckh.errors import UsageError
from ckh.problems import DTYPE_BYTES, PasteableProblem, unknown_dtype
from ckh.records import Record
from ckh.text.prose import one_of

OP_TYPE = "gemm_universal"

# In the order of their codes in AMD's features.
GEMM_LAYOUTS: tuple[str, ...] = ("rcr", "rrr", "crr", "ccr")

# Dataset column -> GemmProblem field, in the order of AMD's GEMM parquet files.
GEMM_COLUMNS: dict[str, str] = {"m": "m", "n": "n", "k": "k", "split_k": "split_k"}

# Complete identity of a problem: groups, joins, oracles and splits use exactly these columns.
GEMM_TEXTS: tuple[str, ...] = ("dtype", "layout")
GEMM_IDENTITY: tuple[str, ...] = (*GEMM_TEXTS, *GEMM_COLUMNS)

# Element type of C where it differs from A and B. Source: the C types of AMD's GEMM kernels.
_OUTPUT_DTYPE = {"fp8": "fp16", "bf8": "fp16", "int8": "int32"}
_LIMIT = 2**31 - 1
_CANONICAL = (
    r"gemm_(?P<dtype>[a-z0-9_]+?)_(?P<layout>[rc]{3})"
    r"_m(?P<m>[0-9]{1,10})_n(?P<n>[0-9]{1,10})_k(?P<k>[0-9]{1,10})_splitk(?P<split_k>[0-9]{1,10})"
)


def output_dtype(dtype: str) -> str:
    """Element type of C for A and B of a dtype."""
    return _OUTPUT_DTYPE.get(dtype, dtype)


def contiguous_axes(layout: str) -> tuple[str, str, str]:
    """The axis ("m", "n" or "k") along which A, B and C lie contiguously."""
    a, b, c = (letter == "r" for letter in layout)
    return "k" if a else "m", "n" if b else "k", "n" if c else "m"


class GemmProblem(PasteableProblem, Record):
    """C (M x N) = A (M x K) x B (K x N); `split_k` blocks share the sum over K of one tile of C.

    Raises:
        UsageError: a size is not a positive integer below 2^31, the dtype or layout is unknown, or K is split into
            more parts than it has elements.
    """

    # Columns of the class; subclasses are problems of other operations.
    size_columns = GEMM_COLUMNS
    text_columns = GEMM_TEXTS

    m: int
    n: int
    k: int
    dtype: str = "fp32"
    layout: str = "rcr"
    split_k: int = 1

    def __post_init__(self) -> None:
        for column, name in GEMM_COLUMNS.items():
            check_size(column, getattr(self, name))
        if self.dtype not in DTYPE_BYTES:
            raise unknown_dtype(self.dtype)
        if self.layout not in GEMM_LAYOUTS:
            raise UsageError(f"unknown layout {self.layout!r}", one_of(self.layout, GEMM_LAYOUTS), code="unknown-name")
        if self.split_k > self.k:
            raise UsageError(f"K={self.k} cannot be split into {self.split_k} parts", code="indivisible")

    @property
    def flops(self) -> int:
        """Number of floating-point operations, 2 M N K."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes of A, B and C together, the minimum to move; C has `output_dtype`."""
        read = (self.m * self.k + self.k * self.n) * DTYPE_BYTES[self.dtype]
        return math.ceil(read + self.m * self.n * DTYPE_BYTES[output_dtype(self.dtype)])

    @property
    def arithmetic_intensity(self) -> float:
        """`flops` / `bytes`. The feature of this name is AMD's, which counts C in the dtype of A."""
        return self.flops / self.bytes

    @property
    def a_shape(self) -> tuple[int, int]:
        """Shape of A, M x K, independent of its layout."""
        return self.m, self.k

    @property
    def b_shape(self) -> tuple[int, int]:
        """Shape of B, K x N, independent of its layout."""
        return self.k, self.n

    @property
    def c_shape(self) -> tuple[int, int]:
        """Shape of C, M x N."""
        return self.m, self.n

    @property
    def spans(self) -> tuple[int, int, int]:
        """Elements of A, B and C from the first to the last, of one matrix each."""
        return self.m * self.k, self.k * self.n, self.m * self.n

    def size(self, axis: str) -> int:
        """The size along "m", "n" or "k"."""
        return {"m": self.m, "n": self.n, "k": self.k}[axis]

    def canonical(self) -> str:
        """Text that holds the complete identity; `parse_gemm_problem` parses it."""
        return f"gemm_{self.dtype}_{self.layout}_m{self.m}_n{self.n}_k{self.k}_splitk{self.split_k}"

    def columns(self) -> dict[str, int]:
        """The sizes under the dataset's column names."""
        return {column: getattr(self, name) for column, name in self.size_columns.items()}

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON; `GemmProblem(**d)` restores the problem."""
        return {name: getattr(self, name) for name in self.field_names}


def parse_gemm_problem(text: str) -> GemmProblem:
    """Parse the text that `GemmProblem.canonical` returns.

    Raises:
        UsageError: the text is malformed, or its sizes are invalid.
    """
    match = re.fullmatch(_CANONICAL, text.strip())
    if match is None:
        raise UsageError(
            f"not a GEMM problem: {text!r}", "e.g. gemm_fp16_rcr_m16_n4096_k4096_splitk1", code="bad-problem"
        )
    sizes = {name: int(match[name]) for name in GEMM_COLUMNS.values()}
    return GemmProblem(**sizes, dtype=match["dtype"], layout=match["layout"])


def check_size(column: str, value: object, least: int = 1) -> None:
    """Refuse a size that is not an integer from `least` to 2^31 - 1.

    Raises:
        UsageError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{column} must be an integer, not {value!r}", code="bad-number")
    if not least <= value <= _LIMIT:
        raise UsageError(f"{column} must be {least} or more (and below 2^31), not {value}", code="out-of-range")
