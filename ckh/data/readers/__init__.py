"""Readers of measurement formats: journals, and those of the operations (`Operation.formats`)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ckh.data.formats import Formats, Reader
from ckh.data.parquet import is_dataset
from ckh.data.readers import journal_reader as journal
from ckh.data.readers import log_times
from ckh.data.readers.cells import PARQUET_MAGIC, parquet_head
from ckh.data.readers.named_table import mapped, open_table
from ckh.errors import DataError, UsageError
from ckh.ops import operation, operation_names, part_of
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.data.formats import Reading, ReadOptions
    from ckh.data.readers.named_table import Table
    from ckh.ops.base import AnyOperation

_HEAD_BYTES = 65536


def formats_of(op: AnyOperation) -> Formats:
    """Return the formats specific to an operation."""
    return part_of(op, op.training.formats, Formats) or Formats()


@cache
def readers() -> dict[str, Reader]:
    """All readers by name, in sniffing order; installed packages cannot replace ckh's own."""
    by_name = {journal.NAME: Reader(journal.NAME, journal.sniff, journal.read)}
    for name in operation_names():
        for reader in formats_of(operation(name)).readers:
            by_name.setdefault(reader.name, reader)
    logs = Reader(log_times.NAME, log_times.sniff, lambda path, options: log_times.read(path, options, read_mapped))
    return by_name | {logs.name: logs}


def read_input(path: Path, options: ReadOptions, format_name: str | None = None) -> Reading:
    """Read a file, or the folder of a ckh bench run, in the given or the detected format."""
    file = _file_of(path)
    if options.op is not None:
        return read_mapped(open_table(file), options)
    if format_name is None:
        return find_reader(file).read(file, options)
    if format_name not in readers():
        raise UsageError(f"unknown format {format_name!r}", one_of(format_name, readers()), code="unknown-name")
    return readers()[format_name].read(file, options)


def read_mapped(table: Table, options: ReadOptions) -> Reading:
    """Read a table whose columns are mapped to those of an operation's measurements."""
    reads = {name: part for name in operation_names() if (part := formats_of(operation(name)).mapped) is not None}
    if options.op not in reads:
        given = "no operation is given" if options.op is None else f"{options.op!r} reads no tables"
        raise UsageError(
            f"{given}, whose measurements {table.where} has", "say --op " + "|".join(reads), code="inapplicable-option"
        )
    part = reads[options.op]
    return part.read(mapped(table, options.mapping, part.columns), options)


def find_reader(path: Path) -> Reader:
    """Detect the reader of a file from its first bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error
    if not head.strip():
        raise DataError(f"{path} is empty", code="empty")
    if head.startswith(PARQUET_MAGIC):
        head = parquet_head(path)
    for reader in readers().values():
        if reader.sniff(head):
            return reader
    if is_dataset(path):
        raise DataError(
            f"{path} is a dataset of ckh already",
            "convert the file that it was converted from",
            code="already-converted",
        )
    raise DataError(
        f"{path} has an unknown format",
        "--op OPERATION reads a table with ckh's column names; or name a format with --from " + "|".join(readers()),
        code="unknown-format",
    )


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    journals = sorted(path.glob("*.jsonl"))
    if len(journals) != 1:
        raise DataError(f"{path} holds {len(journals)} *.jsonl files", "name the journal itself", code="several-files")
    return journals[0]
