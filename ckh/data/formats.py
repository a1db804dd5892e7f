"""Formats of measurements: what reads and writes one, and those that are an operation's alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ckh.documents import Document
from ckh.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.readers.named_table import Table
    from ckh.data.spool import StoredRows
    from ckh.files.outputs import FileKind


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Facts that a file may lack, `None` if not given, and whether bad rows are left out.

    `arch` is the architecture that was measured, `num_cus` its number of compute units. Rows are kept
    beside `output` while they are read, by default in the system's folder of temporary files. `mapping` says which
    column of a table has the values of a column of the operation `op`, ours -> theirs.
    """

    arch: str | None = None
    skip_bad: bool = False
    num_cus: int | None = None
    output: Path | None = None
    op: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The rows of one input.

    `rows` are in the order of the file; `bad` counts the rows left out by reason; `superseded` counts rows that a later
    row of the same input replaced. With `repeats`, rows of one pair are repeated measurements, none of which is better.
    """

    rows: StoredRows
    sources: tuple[dict[str, Any], ...]
    runs: tuple[dict[str, Any], ...] = ()
    bad: dict[str, int] = field(default_factory=dict)
    superseded: int = 0
    warnings: tuple[str, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """A format: its name, whether the first bytes of a file look like it, and how it is read.

    Of a Parquet file `sniff` gets its columns' names instead (`ckh.data.readers.reader.parquet_head`).

    `read` raises `DataError` when the file is unusable, and for bad rows unless they are to be skipped.
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Path, ReadOptions], Reading]


class MeasuredRows(Protocol):
    """Measured rows of one operation that need not fit in memory, as `data.merge.Merged` has them."""

    def __len__(self) -> int:
        """Number of rows."""

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows in compact tables of some thousands, with all columns or those of these names."""

    def distinct(self, name: str) -> tuple[str, ...]:
        """The texts of a column, sorted."""


@dataclass(frozen=True, slots=True)
class RowsFormat:
    """A format that an operation's rows are written in.

    Attributes:
        name: what it is called on the command line.
        summary: what is written, in a few words.
        kind: what a file of it is.
        write: writes rows and gives warnings about what the format cannot hold.
    """

    name: str
    summary: str
    kind: FileKind
    write: Callable[[MeasuredRows, Path], list[str]]


class WinnerSummary(Record):
    """The counts of tables of winners."""

    winners: int
    """Rows written."""
    problems: int
    """Distinct problems."""
    archs: tuple[str, ...]
    dropped: dict[str, int]
    """Rows left out, by reason."""
    repeated: int
    """Slower repetitions."""
    warnings: tuple[str, ...]


class ConvertWinnersDocument(WinnerSummary, Document):
    """ckh convert --to a list of problems --json."""

    schema = "convert_winners"

    out: str
    """The file that was written."""


@dataclass(frozen=True, slots=True)
class ProblemsFormat:
    """A format that the problems of tables of winners are written in.

    Attributes:
        name: what it is called on the command line.
        summary: what is written, in a few words.
        kind: what a file of it is.
        reader: name of the reader of such tables.
        source: what such a table is called.
        write: writes the problems of tables as one file.
    """

    name: str
    summary: str
    kind: FileKind
    reader: str
    source: str
    write: Callable[[Sequence[Path], Path, ReadOptions], WinnerSummary]


@dataclass(frozen=True, slots=True)
class MappedTable:
    """How anybody's table is read whose columns are mapped to an operation's.

    Attributes:
        columns: names that its columns may be mapped to.
        read: reads a table that has these names.
    """

    columns: tuple[str, ...]
    read: Callable[[Table, ReadOptions], Reading]


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats that are an operation's alone."""

    readers: tuple[Reader, ...] = ()
    rows: tuple[RowsFormat, ...] = ()
    problems: tuple[ProblemsFormat, ...] = ()
    mapped: MappedTable | None = None

    @property
    def written(self) -> tuple[RowsFormat | ProblemsFormat, ...]:
        """The formats that can be written."""
        return (*self.rows, *self.problems)
