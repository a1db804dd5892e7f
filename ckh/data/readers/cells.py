"""Cells of a table with their lines, faults of bad rows, times in cells, and provenance, shared by readers."""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError
from ckh.files import untrusted
from ckh.files.account import LeftOut
from ckh.files.untrusted import as_text, csv_rows, integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.files.account import Account

PARQUET_MAGIC = b"PAR1"
WITHOUT_TIME = "without a time"
WRONG_CELLS = "with the wrong number of cells"
BAD_NUMBER = "with a cell that is not a number"
TIMES = ("latency_ms", "latency_us", "tflops")  # a table must have one of these; the first present is used

_NO_NUMBERS = frozenset({"", "nan", "inf", "infinity", "null", "none"})
_MARKS = ("is_valid", "verified", "non_zero")  # false, or 0, for a failure
_NOT_A_NUMBER = -(2**62)
_TRUE = frozenset({"", "true", "1", "1.0"})
_FALSE = frozenset({"false", "0", "0.0"})
_US_PER_MS = 1000.0

_SHOWN = 60
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_BLOCK_BYTES = 1 << 23
_HASHED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WrongLine:
    """A line with another number of cells than the header."""

    line: int
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class TextColumn:
    """A dictionary-encoded column: distinct strings, stripped of spaces, and each row's index."""

    texts: list[str]
    codes: NDArray[np.int64]

    def text(self, row: int) -> str:
        """Return the cell of a row."""
        return self.texts[int(self.codes[row])]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The rows of a CSV file with the right number of cells, and the malformed lines."""

    table: pa.Table
    lines: NDArray[np.int64]
    wrong: list[WrongLine]

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, name: str) -> bool:
        """Return True if the column exists."""
        return name in self.table.column_names

    def text(self, name: str, row: int) -> str:
        """Return a cell of a column with many distinct strings."""
        return str(self.table.column(name)[row].as_py())

    def column(self, name: str) -> TextColumn:
        """Return a column with few distinct strings."""
        array = self.table.column(name).unify_dictionaries().combine_chunks()
        return TextColumn(
            [text.strip() for text in array.dictionary.to_pylist()], array.indices.to_numpy().astype("int64")
        )

    def floats(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers, NaN where a cell is not a number."""
        import pyarrow as pa
        import pyarrow.compute as pc

        cells = self.table.column(name)
        try:
            numbers = cells.cast(pa.float64())
        except pa.ArrowInvalid:
            is_number = pc.match_substring_regex(cells, _NUMBER)
            kept = pc.if_else(is_number, pc.utf8_trim_whitespace(cells), pa.scalar(None, pa.string()))
            numbers = kept.cast(pa.float64())
        values: NDArray[np.float64] = numbers.to_numpy()
        return values


class Faults:
    """Bad rows with the first reason recorded for each."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._code = np.zeros(len(cells), dtype=np.int8)
        self._kinds: list[tuple[str, Callable[[int], str]]] = []

    @property
    def good(self) -> NDArray[np.bool_]:
        """Mask of rows without a fault."""
        is_good: NDArray[np.bool_] = self._code == 0
        return is_good

    def mark(self, rows: NDArray[Any], reason: str, detail: Callable[[int], str]) -> None:
        """Record a fault for the rows of a mask; `detail` describes it for one row."""
        if rows.any():
            self._kinds.append((reason, detail))
            self._code[rows & self.good] = len(self._kinds)

    def count(self, account: Account) -> None:
        """Count the good rows, and the bad ones by reason."""
        if wrong := self._cells.wrong:
            account.doubt(WRONG_CELLS, f"line {wrong[0].line}: {wrong[0].detail}", len(wrong))
        account.use(int(self.good.sum()))
        for number, (reason, detail) in enumerate(self._kinds, 1):
            if len(rows := np.flatnonzero(self._code == number)):
                first = int(rows[0])
                account.doubt(reason, f"line {self._cells.lines[first]}: {detail(first)}", len(rows))


def read_header(path: Path, content: bytes) -> list[str]:
    """Read the column names of a CSV file."""
    line = as_text(path, io.BytesIO(content).readline()).rstrip("\r\n")
    if "\r" in line:
        raise DataError(
            f"{path}:1: a carriage return inside of the line",
            "save the file with line feeds at line ends",
            code="bad-row",
        )
    names = next((cells for _, cells in csv_rows(path, line)), [])
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path}: column {name} occurs twice", code="duplicate-column")
    return names


def read_cells(
    path: Path, file: BinaryIO, names: Sequence[str], few: Sequence[str], many: Sequence[str], comments: int = 0
) -> Iterator[Cells]:
    """Read the columns `few` (few distinct strings) and `many` of a CSV file, some megabytes at a time.

    The header follows `comments` comment lines.
    """
    import pyarrow as pa

    types = {**dict.fromkeys(few, pa.dictionary(pa.int32(), pa.string())), **dict.fromkeys(many, pa.string())}
    file.seek(0)
    for _ in range(comments + 1):
        file.readline()
    line = comments + 2
    # Arrow's own streaming reader would read 32 blocks ahead.
    while block := file.read(_BLOCK_BYTES):
        try:
            table, wrong = _parsed(block + file.readline(_BLOCK_BYTES), line, names, types)
        except pa.ArrowException as error:
            raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}", code="unreadable") from error
        every = np.arange(line, line + table.num_rows + len(wrong))
        lines = every[~np.isin(every, [bad.line for bad in wrong])][: table.num_rows]
        line += table.num_rows + len(wrong)
        empty = _empty_lines(table)
        keep = np.flatnonzero(~empty)
        yield Cells(table.take(keep) if empty.any() else table, lines[keep], wrong)


def _parsed(
    block: bytes, first: int, names: Sequence[str], types: dict[str, pa.DataType]
) -> tuple[pa.Table, list[WrongLine]]:
    """Parse whole lines, numbered from `first`, into columns; return malformed lines separately."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    wrong: list[WrongLine] = []

    def note_wrong(row: Any) -> str:
        cells = f"{row.actual_columns} cells instead of {row.expected_columns}: {row.text[:_SHOWN]!r}"
        wrong.append(WrongLine(first + row.number - 1, cells))
        return "skip"

    table = arrow_csv.read_csv(
        pa.BufferReader(block),
        # With threads the line numbers of malformed rows would be lost.
        arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
        arrow_csv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=note_wrong),
        arrow_csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False),
    )
    return table, wrong


def _empty_lines(table: pa.Table) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    empty = np.ones(table.num_rows, dtype=bool)
    for column in table.columns:
        if hasattr(column.type, "value_type"):
            encoded = column.unify_dictionaries().combine_chunks()
            is_empty = pc.equal(pc.binary_length(encoded.dictionary), 0).take(encoded.indices)
        else:
            is_empty = pc.equal(pc.binary_length(column), 0)
        empty &= is_empty.to_numpy(zero_copy_only=False)
        if not empty.any():
            break
    return empty


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
        values: list[int] = self.distinct[self.codes[rows]].tolist()
        return values


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
            column = cells.column(mark)
            missing &= ~np.array([text.lower() in _FALSE for text in column.texts] or [False])[column.codes]
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


def stated_time(text: str) -> float:
    """Return the time in a cell; it is left out if empty, 0, -1 or not finite, as tuners write it for a failure."""
    time = float(text.replace("_", "no number") or "nan")
    if not math.isfinite(time) or time in (0, -1):
        raise LeftOut(WITHOUT_TIME)
    if time < 0:
        raise ValueError(text)
    return time


def read_bytes(path: Path) -> bytes:
    """Read a file that must not be empty."""
    content = untrusted.read_bytes(path, untrusted.MOST_TEXT_BYTES)
    if not content or content.isspace():
        raise DataError(f"{path} is empty", code="empty")
    return content


def source_of(path: Path, content: bytes, format_name: str) -> dict[str, Any]:
    """Provenance of an input file, as stored in a dataset."""
    return {"name": path.name, "format": format_name, "sha256": hashlib.sha256(content).hexdigest()}


def source_of_file(path: Path, format_name: str) -> dict[str, Any]:
    """`source_of` for a file that need not fit in memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASHED_BYTES):
            digest.update(block)
    return {"name": path.name, "format": format_name, "sha256": digest.hexdigest()}


def parquet_head(path: Path) -> bytes:
    """Return a text that identifies the format of a Parquet file: its magic number and a line with its column names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}", code="unreadable") from error
    return PARQUET_MAGIC + b"\n" + ",".join(names).encode() + b"\n"


def parquet_columns(head: bytes) -> frozenset[str]:
    """Column names of a Parquet file from its `parquet_head`; empty for other files."""
    magic, _, names = head.partition(b"\n")
    return frozenset(names.decode(errors="replace").strip().split(",")) if magic == PARQUET_MAGIC else frozenset()
