"""Columns of cells as numbers, their faults noted: what readers of tables share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.files.untrusted import integer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ckh.data.readers.cells import Cells, Faults, TextColumn

BAD_NUMBER = "with a cell that is not a number"
TIMES = ("latency_ms", "latency_us", "tflops")  # of which a table must have one; the first that it has counts

_NOT_A_NUMBER = -(2**62)
_TRUE = frozenset({"", "true", "1", "1.0"})
_US_PER_MS = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """Integers as sorted distinct ones and each row's number among them."""

    distinct: NDArray[np.int64]
    codes: NDArray[np.int64]

    @property
    def values(self) -> NDArray[np.int64]:
        """The integer of each row."""
        return self.distinct[self.codes]

    def at(self, rows: NDArray[np.int64]) -> list[int]:
        """The integers of rows."""
        found: list[int] = self.distinct[self.codes[rows]].tolist()
        return found


def integers(cells: Cells, name: str, faults: Faults, default: int | None = None) -> Integers:
    """A column of integers; where there is a default, empty cells, and all without the column, have that.

    Without a default, an empty cell is a fault.
    """
    import numpy as np

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
    """A column of finite numbers; NaN where a cell is empty, if it may be, and where it is a fault."""
    import numpy as np

    values = cells.floats(name)
    bad = ~np.isfinite(values)
    if may_be_empty and bad.any():
        bad[bad] = [cells.text(name, row).strip().lower() not in {"", "nan"} for row in np.flatnonzero(bad).tolist()]
    faults.mark(bad, BAD_NUMBER, lambda row: f"{name} is {cells.text(name, row)!r}")
    return values


def true_cells(column: TextColumn) -> NDArray[np.bool_]:
    """The rows whose cell says true or 1, or nothing."""
    import numpy as np

    truth = [text.lower() in _TRUE for text in column.texts]
    return np.array(truth or [True])[column.codes]


def time_column(cells: Cells) -> str:
    """The column that times come from: `latency_ms`, else `latency_us`, else `tflops`."""
    return next(name for name in TIMES if cells.has(name))


def times_ms(column: str, values: NDArray[np.float64], flops: NDArray[Any]) -> NDArray[np.float64]:
    """Times in ms from a column's numbers; where these are TFLOPS, also from each row's operations."""
    import numpy as np

    if column == "tflops":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, flops / values / 1e9, values)
    return values / _US_PER_MS if column == "latency_us" else values


def _integer(text: str, default: int | None) -> int:
    """The integer that a text says, also as 64.0."""
    if not text and default is not None:
        return default
    try:
        return integer(text)
    except ValueError:
        return _NOT_A_NUMBER
