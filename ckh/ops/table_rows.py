"""Rows of tables of measurements: what the readers for convolutions and for matrix products share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.formats import Reading, ReadOptions
from ckh.data.numbering import combined_numbers, first_rows
from ckh.data.readers.cells import WITHOUT_TIME, Cells, Faults, Integers, with_times
from ckh.data.spool import StoredRows
from ckh.errors import CkhError
from ckh.files.account import Account, LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.data.readers.named_table import Table

BAD_KERNEL = "with a kernel name that does not parse"
_TFLOPS_TOLERANCE = 0.01


class TableRows(ABC):
    """The valid rows of a table, and counts of the others; data that grow with the rows are on disk."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.account = Account(options.strict)
        self.good = StoredRows(options.output)
        self._known: dict[str, Any] = {}
        self._differing, self._example = 0, ""

    @abstractmethod
    def parsed(self, text: str) -> Any:
        """Return what a kernel's name denotes; raises `LeftOut` or `CkhError`."""

    @abstractmethod
    def judged(self, cells: Cells, faults: Faults) -> pa.Table:
        """Validate rows, recording faults, and return the table of the valid ones."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Warnings about the rows."""

    def add(self, cells: Cells) -> None:
        """Validate and add rows."""
        cells, missing = with_times(cells)
        if missing:
            self.account.leave_out(WITHOUT_TIME, count=missing)
        faults = Faults(cells)
        table = self.judged(cells, faults)
        faults.count(self.account)
        if len(table):
            self.good.add(table)

    def reading(self, table: Table, form: str, before: Sequence[str] = ()) -> Reading:
        """Return the rows of a table, with warnings; refuse one without good ones."""
        self.account.settle(table.where)
        source = {"name": table.file_name, "format": form, "sha256": table.sha256}
        warnings = (*before, *table.warnings, *(f"{table.where}: {text}" for text in self.notes()))
        return Reading(self.good, (source,), account=self.account, warnings=warnings, repeats=True)

    def compare_tflops(self, lines: NDArray[np.int64], theirs: NDArray[np.float64], ours: NDArray[np.float64]) -> None:
        """Count the rows whose TFLOPS in the table differ from operations / time; NaN is not compared."""
        differ = np.abs(theirs - ours) > _TFLOPS_TOLERANCE * ours
        if differ.any() and not self._differing:
            first = int(differ.argmax())
            self._example = f"line {lines[first]}: {theirs[first]:g} instead of {ours[first]:g}"
        self._differing += int(differ.sum())

    def differing_tflops(self) -> list[str]:
        """Warning about such rows."""
        rows = f"in {self._differing} rows, e.g. {self._example}"
        text = f"tflops differ by more than 1 % from flops / time {rows}; flops / time is kept"
        return [text] if self._differing else []

    def kernels_of(self, cells: Cells, faults: Faults) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the distinct kernels of rows, each name parsed once, and each row's index among them."""
        column = cells.column("kernel")
        kernels: list[Any] = []
        number = np.zeros(len(column.texts), dtype=np.int64)
        complaints: dict[int, LeftOut] = {}
        for i, text in enumerate(column.texts):
            if text not in self._known:
                try:
                    self._known[text] = self.parsed(text)
                except LeftOut as why:
                    self._known[text] = why
                except CkhError as error:
                    self._known[text] = LeftOut(BAD_KERNEL, error.message)
            if isinstance(self._known[text], LeftOut):
                complaints[i] = self._known[text]
            else:
                number[i] = len(kernels)
                kernels.append(self._known[text])
        _mark(faults, column.codes, complaints)
        return kernels, number[column.codes]


def distinct_problems(
    faults: Faults, kinds: Sequence[Any], kind_of_row: NDArray[Any], sizes: Sequence[Integers], make: Callable[..., Any]
) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct problems of the valid rows, each validated once, and each row's index among them.

    `make` builds the problem of a kind and sizes, or raises `LeftOut`.
    """
    of_row = np.zeros(len(kind_of_row), dtype=np.int64)
    good = np.flatnonzero(faults.good)
    if not len(good):
        return [], of_row
    columns = [Integers(np.arange(len(kinds)), kind_of_row), *sizes]
    group = combined_numbers((column.codes[good], len(column.distinct)) for column in columns)
    first = good[first_rows(group)]
    problems: list[Any] = []
    number = np.zeros(len(first), dtype=np.int64)
    complaints: dict[int, LeftOut] = {}
    for i, (kind, *given) in enumerate(zip(*(column.at(first) for column in columns), strict=True)):
        try:
            problem = make(kinds[kind], given)
        except LeftOut as why:
            complaints[i] = why
            continue
        number[i] = len(problems)
        problems.append(problem)
    of_row[good] = number[group]
    group_of_row = np.full(len(of_row), -1, dtype=np.int64)
    group_of_row[good] = group
    _mark(faults, group_of_row, complaints)
    return problems, of_row


def _mark(faults: Faults, group_of_row: NDArray[np.int64], complaints: dict[int, LeftOut]) -> None:
    """Mark the rows of groups that cannot be used."""
    for reason in dict.fromkeys(why.reason for why in complaints.values()):
        groups = [i for i, why in complaints.items() if why.reason == reason]
        is_bad = np.isin(group_of_row, groups)
        faults.mark(is_bad, reason, lambda row: complaints[int(group_of_row[row])].detail)
