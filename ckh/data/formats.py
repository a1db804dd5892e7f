"""Formats of measurements: their readers and writers, and the formats specific to an operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ckh.files.account import Account

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.readers.named_table import Table
    from ckh.data.spool import StoredRows
    from ckh.files.outputs import FileKind


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Facts that a file may lack (`None` if not given), and whether an entry that ckh does not understand is an error.

    `arch` is the measured architecture, `num_cus` its number of compute units. Rows spill to a file beside `output`, by
    default in the system's temporary folder. `mapping` maps columns of the operation `op` to columns of the table. With
    `peak_check`, rows with times above the peak of their GPU are left out, and many of them are an error.
    """

    arch: str | None = None
    strict: bool = False
    num_cus: int | None = None
    output: Path | None = None
    op: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    peak_check: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The rows of one input.

    `rows` are in file order; `account` counts what became of the entries; `superseded` counts rows replaced by a later
    row of the same input. With `repeats`, rows of one pair are repeated measurements of equal standing.
    """

    rows: StoredRows
    sources: tuple[dict[str, Any], ...]
    runs: tuple[dict[str, Any], ...] = ()
    account: Account = field(default_factory=Account)
    superseded: int = 0
    warnings: tuple[str, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """A format: its name, whether the first bytes of a file look like it, and how to read it.

    For a Parquet file `sniff` is given the column names instead (`ckh.data.readers.cells.parquet_head`).

    `read` raises `DataError` if nothing of the file is usable (`ckh.files.account`).
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Path, ReadOptions], Reading]


class MeasuredRows(Protocol):
    """Measured rows of one operation that need not fit in memory, such as `data.merge.Merged`."""

    def __len__(self) -> int:
        """Number of rows."""

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in compact tables of some thousands of rows, with all or the named columns."""

    def distinct(self, name: str) -> tuple[str, ...]:
        """Distinct values of a string column, sorted."""


@dataclass(frozen=True, slots=True)
class RowsFormat:
    """A format in which an operation's rows can be written."""

    name: str  # on the command line
    summary: str  # short description of the output
    kind: FileKind
    write: Callable[[MeasuredRows, Path], list[str]]  # returns warnings about what the format cannot represent


@dataclass(frozen=True, slots=True)
class MappedTable:
    """Reader of any table whose columns are mapped to an operation's."""

    columns: tuple[str, ...]  # the operation's columns that can be mapped
    read: Callable[[Table, ReadOptions], Reading]


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats specific to an operation."""

    readers: tuple[Reader, ...] = ()
    rows: tuple[RowsFormat, ...] = ()
    mapped: MappedTable | None = None
