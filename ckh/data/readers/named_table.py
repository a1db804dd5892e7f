"""Tables in foreign formats (CSV, Parquet, data frames) as cells in blocks of rows, with mapped column names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.parquet import ahead
from ckh.data.readers.cells import PARQUET_MAGIC, Cells, read_cells, read_header
from ckh.errors import DataError, UsageError, WrongTypeError
from ckh.files import untrusted
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa

    ReadBlocks = Callable[[Sequence[str], Sequence[str]], Iterator[Cells]]

COMMENT = b"#"
_CHUNK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 1 << 16
_MAX_COMMENTS = 100
_BATCH_ROWS = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table."""

    where: str  # its name in messages
    file_name: str
    sha256: str  # checksum of its content
    columns: Mapping[str, str]  # column name -> the table's own name for it
    warnings: tuple[str, ...]  # warnings about it
    read: ReadBlocks  # reads the cells of few-valued and of many-valued columns, given by the table's own names

    def has(self, name: str) -> bool:
        """Return True if the column exists."""
        return name in self.columns

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Rename columns, new name -> present name; others are unchanged."""
        taken = {*names, *names.values()}
        kept = {name: own for name, own in self.columns.items() if name not in taken}
        return replace(self, columns=kept | {new: self.columns[name] for new, name in names.items()})

    def blocks(self, few: Sequence[str], many: Sequence[str]) -> Iterator[Cells]:
        """Yield the cells of columns with few distinct strings and of others, some megabytes at a time."""
        theirs = {self.columns[name]: name for name in (*few, *many)}
        for cells in ahead(self.read([self.columns[name] for name in few], [self.columns[name] for name in many])):
            names = [theirs[own] for own in cells.table.column_names]
            yield replace(cells, table=cells.table.rename_columns(names))

    def distinct(self, name: str) -> tuple[str, ...]:
        """Distinct values of a column, without empty strings, sorted."""
        texts: set[str] = set()
        for cells in self.blocks([name], []):
            texts.update(cells.column(name).texts)
        return tuple(sorted(texts - {""}))

    def arch(self, given: str | None) -> str:
        """Return the given architecture, or the one in the column `arch`."""
        stated = {text.partition(":")[0] for text in self.distinct("arch")} if self.has("arch") else set[str]()
        if len(stated) > 1:
            raise DataError(
                f"{self.where}: rows of several architectures: {', '.join(sorted(stated))}",
                "split them",
                code="mixed-data",
            )
        if given is None and not stated:
            hint = "give it with --arch, e.g. --arch gfx942"
            raise UsageError(f"{self.where} does not state the device", hint, code="unknown-hardware")
        if given is not None and stated - {given}:
            raise UsageError(
                f"{self.where} was measured on {stated.pop()}, not on {given}", "omit --arch", code="mismatch"
            )
        return given or stated.pop()


def open_table(path: Path) -> Table:
    """Open the table in a CSV or Parquet file."""
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
            file.seek(0)
            sha256, end = _look_through(path, file)
            if is_parquet:
                return _parquet_table(path, sha256)
            return _csv_table(path, file, sha256, end)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error


def header_of(head: bytes) -> set[str]:
    """Names of the columns in a CSV file's first bytes, after comments."""
    first = next((line for line in head.split(b"\n") if not line.startswith(COMMENT)), b"")
    return {name.strip().strip('"') for name in first.decode("utf-8-sig", "replace").split(",")}


def frame_table(frame: Any) -> Table:
    """Wrap a data frame, what exports itself by Arrow's C stream, a dict of columns or a list of rows as a table."""
    import pandas as pd
    import pyarrow as pa

    where = "the frame"
    try:
        if isinstance(frame, pd.DataFrame):
            table = pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)
        elif isinstance(frame, dict):
            table = pa.table({str(name): column for name, column in frame.items()})
        elif hasattr(frame, "__arrow_c_stream__"):
            table = pa.table(frame)
        elif isinstance(frame, (list, tuple)):
            table = pa.Table.from_pylist(list(frame))
        else:
            raise WrongTypeError(where, "a data frame, an Arrow table, a dict of columns or a list of dicts", frame)
    except (pa.ArrowException, AttributeError, ValueError, TypeError) as error:
        raise DataError(f"{where}: {str(error).splitlines()[0]}", code="unreadable") from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    sha256 = hashlib.sha256(sink.getvalue()).hexdigest()

    def read(few: Sequence[str], many: Sequence[str]) -> Iterator[Cells]:
        batches = table.select([*few, *many]).to_batches(max_chunksize=_BATCH_ROWS)
        return _cells_of(where, batches, few, many)

    return Table(where, "frame", sha256, {name: name for name in table.column_names}, (), read)


def _csv_table(path: Path, file: BinaryIO, sha256: str, end: bytes) -> Table:
    comments = 0
    while (line := file.readline(_MAX_HEADER_BYTES)).startswith(COMMENT) and comments < _MAX_COMMENTS:
        comments += 1
    names = read_header(path, line)
    cut = () if end == b"\n" else (f"{path}: the last line has no end, the file may be cut off",)

    def read(few: Sequence[str], many: Sequence[str]) -> Iterator[Cells]:
        with path.open("rb") as again:
            yield from read_cells(path, again, names, few, many, comments)

    return Table(str(path), path.name, sha256, {name: name for name in names}, cut, read)


def _parquet_table(path: Path, sha256: str) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(str(path), error) from error

    def read(few: Sequence[str], many: Sequence[str]) -> Iterator[Cells]:
        texts = [name for name in few if pa.types.is_string(schema.field(name).type)]
        # Strings stay dictionary-encoded, so that a long string repeated a million times is stored once.
        file = pq.ParquetFile(path, read_dictionary=texts)
        batches = file.iter_batches(_BATCH_ROWS, columns=[*few, *many], use_threads=False)
        return _cells_of(str(path), batches, few, many)

    for name in schema.names:
        if schema.names.count(name) > 1:
            raise DataError(f"{path}: column {name} occurs twice", code="duplicate-column")
    return Table(str(path), path.name, sha256, {name: name for name in schema.names}, (), read)


def _cells_of(
    where: str, batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch], few: Sequence[str], many: Sequence[str]
) -> Iterator[Cells]:
    """Yield the cells of Arrow batches; rows are numbered from 1, and null becomes an empty string."""
    import pyarrow as pa

    first = 1
    try:
        for batch in batches:
            batch.validate(full=True)
            if batch.nbytes > untrusted.MOST_BYTES:
                raise DataError(f"{where}: its rows exceed the size of any measurements", code="too-large")
            columns = {name: _texts(batch.column(name)).dictionary_encode() for name in few}
            columns |= {name: _numbers(batch.column(name)) for name in many}
            yield Cells(pa.table(columns), np.arange(first, first + len(batch)), [])
            first += len(batch)
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise _unreadable(where, error) from error


def _texts(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.string()).fill_null("")


def _numbers(column: pa.Array) -> pa.Array:
    """Convert numbers to float with NaN for null; strings are unchanged."""
    import pyarrow as pa

    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return column.cast(pa.float64()).fill_null(float("nan")) if is_number else _texts(column)


def _unreadable(where: str, error: Exception) -> DataError:
    return DataError(f"cannot read {where}: {next(chain(str(error).strip().splitlines(), ['']))}", code="unreadable")


def _look_through(path: Path, file: BinaryIO) -> tuple[str, bytes]:
    """Compute the checksum of a file from its beginning, and its last byte; rewinds the file."""
    digest, last, is_empty = hashlib.sha256(), b"", True
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        last, is_empty = chunk[-1:], is_empty and chunk.isspace()
    if is_empty:
        raise DataError(f"{path} is empty", code="empty")
    file.seek(0)
    return digest.hexdigest(), last


def mapped(table: Table, mapping: Mapping[str, str], known: Sequence[str]) -> Table:
    """Apply `--map ours=theirs` to the table's column names."""
    for ours, theirs in mapping.items():
        if ours not in known:
            raise UsageError(
                f"there is no column {ours!r} to map {theirs!r} to", one_of(ours, known), code="missing-column"
            )
        if list(mapping.values()).count(theirs) > 1:
            raise UsageError(f"--map takes {theirs!r} for several columns", code="duplicate-name")
        if not table.has(theirs):
            raise DataError(
                f"{table.where} has no column {theirs!r} for {ours}",
                "it has " + ", ".join(table.columns),
                code="missing-column",
            )
    return table.renamed(mapping)


def require_columns(table: Table, required: Sequence[str], times: Sequence[str]) -> None:
    """Refuse a table with missing columns, naming all of them."""
    missing = [name for name in required if not table.has(name)]
    if not any(table.has(name) for name in times):
        missing.append(" or ".join(times))
    if missing:
        word = "column" if len(missing) == 1 else "columns"
        verb = "is" if len(missing) == 1 else "are"
        hint = f"it has {', '.join(table.columns)}; say which is which with --op OPERATION --map {required[0]}=THEIRS"
        raise DataError(f"{table.where}: {word} {', '.join(missing)} {verb} missing", hint, code="missing-column")
