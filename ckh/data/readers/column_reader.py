"""Numeric columns with their faults recorded, shared by readers of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.readers.cells import Cells
from ckh.files.untrusted import integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.readers.cells import Faults, TextColumn

BAD_NUMBER = "with a cell that is not a number"
TIMES = ("latency_ms", "latency_us", "tflops")  # a table must have one of these; the first present is used

WITHOUT_TIME = "without a time"

_NO_NUMBERS = frozenset({"", "nan", "inf", "infinity", "null", "none"})
_MARKS = ("is_valid", "verified", "non_zero")  # false, or 0, for a failure
_NOT_A_NUMBER = -(2**62)
_TRUE = frozenset({"", "true", "1", "1.0"})
_FALSE = frozenset({"false", "0", "0.0"})
_US_PER_MS = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """Dictionary-encoded integers: sorted distinct values and each row's index."""

    distinct: NDArray[np.int64]
    codes: NDArray[np.int64]

    @property
    def values(self) -> NDArray[np.int64]:
        """Value of each row."""
        return self.distinct[self.codes]

    def at(self, rows: NDArray[np.int64]) -> list[int]:
        """Return the values of the given rows."""
        result: list[int] = self.distinct[self.codes[rows]].tolist()
        return result


def integers(cells: Cells, name: str, faults: Faults, default: int | None = None) -> Integers:
    """Read a column of integers; a default replaces empty cells and a missing column.

    Without a default, an empty cell is a fault.
    """
    if not cells.has(name):
        return Integers(np.array([default or 0]), np.zeros(len(cells), dtype=np.int64))
    column = cells.column(name)
    numbers = np.array([_integer(text, default) for text in column.texts], dtype=np.int64)
    distinct, place = np.unique(numbers, return_inverse=True)
    codes = place[column.codes]
    if _NOT_A_NUMBER in distinct:
        faults.mark(distinct[codes] == _NOT_A_NUMBER, BAD_NUMBER, lambda row: f"{name} is {column.text(row)!r}")
    return Integers(distinct, codes)


def numbers(cells: Cells, name: str, faults: Faults, *, may_be_empty: bool) -> NDArray[np.float64]:
    """Read a column of finite numbers; NaN for faults, and for empty cells if `may_be_empty`."""
    values = cells.floats(name)
    bad = ~np.isfinite(values)
    if may_be_empty and bad.any():
        bad[bad] = [cells.text(name, row).strip().lower() not in {"", "nan"} for row in np.flatnonzero(bad).tolist()]
    faults.mark(bad, BAD_NUMBER, lambda row: f"{name} is {cells.text(name, row)!r}")
    return values


def true_cells(column: TextColumn) -> NDArray[np.bool_]:
    """Mask of rows whose cell is true, 1 or empty."""
    truth = [text.lower() in _TRUE for text in column.texts]
    return np.array(truth or [True])[column.codes]


def _is_false(column: TextColumn) -> NDArray[np.bool_]:
    """Mask of rows whose cell is false or 0."""
    return np.array([text.lower() in _FALSE for text in column.texts] or [False])[column.codes]


def time_column(cells: Cells) -> str:
    """Name of the column with the times: `latency_ms`, else `latency_us`, else `tflops`."""
    return next(name for name in TIMES if cells.has(name))


def with_times(cells: Cells) -> tuple[Cells, int]:
    """Return the rows that have a time or are marked as failed, and the number of the others: no time, zero or inf."""
    name = time_column(cells)
    values = cells.floats(name)
    missing = ~np.isfinite(values) | (values == 0)
    for row in np.flatnonzero(missing & np.isnan(values)).tolist():
        missing[row] = cells.text(name, row).strip().lower().lstrip("+-") in _NO_NUMBERS
    for mark in _MARKS:
        if cells.has(mark):
            missing &= ~_is_false(cells.column(mark))
    if not missing.any():
        return cells, 0
    kept = np.flatnonzero(~missing)
    return Cells(cells.table.take(kept), cells.lines[kept], cells.wrong), len(cells) - len(kept)


def times_ms(column: str, values: NDArray[np.float64], flops: NDArray[Any]) -> NDArray[np.float64]:
    """Convert a column's numbers to ms; TFLOPS are converted with each row's number of operations."""
    if column == "tflops":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, flops / values / 1e9, values)
    return values / _US_PER_MS if column == "latency_us" else values


def _integer(text: str, default: int | None) -> int:
    """Parse an integer, also from a form such as 64.0."""
    if not text and default is not None:
        return default
    try:
        return integer(text)
    except ValueError:
        return _NOT_A_NUMBER
