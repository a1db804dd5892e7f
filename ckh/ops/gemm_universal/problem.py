"""`GemmProblem`: one matrix product, with complete identity.

Two problems are equal only if all fields are equal: times of different layouts, dtypes or splits of K are never
compared.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ckh.errors import UsageError
from ckh.problems import DTYPE_BYTES, PasteableProblem, settle_size, unknown_dtype
from ckh.records import Record
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

OP_TYPE = "gemm_universal"

# In the order of their codes in AMD's features.
GEMM_LAYOUTS: tuple[str, ...] = ("rcr", "rrr", "crr", "ccr")

# Dataset column -> GemmProblem field, in the order of AMD's GEMM parquet files.
GEMM_COLUMNS: dict[str, str] = {"m": "m", "n": "n", "k": "k", "split_k": "split_k"}

GEMM_TEXTS: tuple[str, ...] = ("dtype", "layout")

# Element type of C where it differs from A and B. Source: the C types of AMD's GEMM kernels.
_OUTPUT_DTYPE = {"fp8": "fp16", "bf8": "fp16", "int8": "int32"}


class Stated(NamedTuple):
    """A field in canonical texts: `_`, a mark and the value."""

    field: str  # the field
    mark: str  # text before the value
    pattern: str = "[0-9]{1,10}"  # regular expression of values
    is_optional: bool = False  # whether a text leaves out the value 0


M, N, K, SPLIT_K = Stated("m", "m"), Stated("n", "n"), Stated("k", "k"), Stated("split_k", "splitk")


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

    # Facts of the class; subclasses are problems of other operations.
    op_type = OP_TYPE
    prefix = "gemm_"  # of canonical texts
    noun = "a GEMM problem"
    example = "fp16_rcr_m16_n4096_k4096_splitk1"  # canonical text without its prefix
    stated: ClassVar[tuple[Stated, ...]] = (M, N, K, SPLIT_K)  # fields of canonical texts after dtype and layout
    size_columns = GEMM_COLUMNS
    text_columns = GEMM_TEXTS
    required: ClassVar[tuple[str, ...]] = ("m", "n", "k")  # fields that a file must state
    dtypes: ClassVar[Iterable[str]] = DTYPE_BYTES
    whole_k = ""  # reason why K is not split; empty: it may be

    m: int
    n: int
    k: int
    dtype: str = "fp32"
    layout: str = "rcr"
    split_k: int = 1

    def __post_init__(self) -> None:
        for column, name in GEMM_COLUMNS.items():
            settle_size(self, name, column)
        if self.dtype not in DTYPE_BYTES:
            raise unknown_dtype(self.dtype)
        if self.layout not in GEMM_LAYOUTS:
            raise UsageError(f"unknown layout {self.layout!r}", one_of(self.layout, GEMM_LAYOUTS), code="unknown-name")
        if self.dtype not in self.dtypes:
            raise UsageError(
                f"{self.op_type} has no kernels of {self.dtype}",
                "one of " + ", ".join(self.dtypes),
                code="unknown-dtype",
            )
        if self.whole_k and self.split_k != 1:
            raise UsageError(f"split_k={self.split_k}: {self.whole_k}", "omit split_k", code="out-of-range")
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
    def lines(self) -> tuple[tuple[int, int], ...]:
        """Number and length of the contiguous lines of A, B and C."""
        shapes = (self.a_shape, self.b_shape, self.c_shape)
        return tuple(shape if letter == "r" else shape[::-1] for shape, letter in zip(shapes, self.layout, strict=True))

    @property
    def leading(self) -> tuple[int, ...]:
        """Distances of the lines of A, B and C in elements."""
        return tuple(length for _, length in self.lines)

    @property
    def spans(self) -> tuple[int, int, int]:
        """Elements of A, B and C from the first to the last, of one matrix each."""
        a, b, c = (
            (lines - 1) * distance + length for (lines, length), distance in zip(self.lines, self.leading, strict=True)
        )
        return a, b, c

    def size(self, axis: str) -> int:
        """The size along "m", "n" or "k"."""
        return {"m": self.m, "n": self.n, "k": self.k}[axis]

    @classmethod
    def identity(cls) -> tuple[str, ...]:
        """Dataset columns of the complete identity: groups, joins, oracles and splits use exactly these."""
        return *cls.text_columns, *GEMM_COLUMNS, *(name for name in cls.size_columns if name not in GEMM_COLUMNS)

    def canonical(self) -> str:
        """Text that holds the complete identity; `parsed` parses it."""
        values = [(part, getattr(self, part.field)) for part in self.stated]
        fields = "".join([f"_{part.mark}{value}" for part, value in values if value or not part.is_optional])
        return f"{self.prefix}{self.dtype}_{self.layout}{fields}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Parse the text that `canonical` returns."""
        match = _pattern_of(cls).fullmatch(text.strip())
        if match is None:
            raise UsageError(f"not {cls.noun}: {text!r}", f"e.g. {cls.prefix}{cls.example}", code="bad-problem")
        stated = {name: value for name, value in match.groupdict().items() if value is not None}
        fields: dict[str, Any] = {
            name: value if name in cls.text_columns else int(value) for name, value in stated.items()
        }
        return cls(**fields)

    def columns(self) -> dict[str, int]:
        """The sizes under the dataset's column names."""
        return {column: getattr(self, name) for column, name in self.size_columns.items()}

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON; `GemmProblem(**d)` restores the problem."""
        return {name: getattr(self, name) for name in self.field_names}


@cache
def _pattern_of(kind: type[GemmProblem]) -> re.Pattern[str]:
    """Return the pattern of a class's canonical texts."""
    parts = (f"(?:_{part.mark}(?P<{part.field}>{part.pattern}))" + "?" * part.is_optional for part in kind.stated)
    return re.compile(rf"{kind.prefix}(?P<dtype>[a-z0-9_]+?)_(?P<layout>[rc]{{3}})" + "".join(parts))
