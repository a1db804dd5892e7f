"""Readers of the formats that measurements come in: one table, in which a new format is one more entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.data.readers import aiter_csv, amd_csv, bench_log, journal, miopen_fdb, tile_engine_json
from ckh.data.readers._base import BadRow, Reader, Reading, ReadOptions
from ckh.errors import DataError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_HEAD_BYTES = 65536

READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader(journal.NAME, journal.sniff, journal.read),
        Reader(amd_csv.NAME, amd_csv.sniff, amd_csv.read),
        Reader(miopen_fdb.NAME, miopen_fdb.sniff, miopen_fdb.read),
        Reader(tile_engine_json.NAME, tile_engine_json.sniff, tile_engine_json.read),
        Reader(bench_log.NAME, bench_log.sniff, bench_log.read),
        Reader(aiter_csv.NAME, aiter_csv.sniff, aiter_csv.read),
    )
}

__all__ = ["READERS", "BadRow", "ReadOptions", "Reader", "Reading", "find_reader", "read_input"]


def read_input(path: Path, options: ReadOptions, format_name: str | None = None) -> Reading:
    """Read a file, or the folder of a run of ckh bench, in the format it is in or the one given.

    Raises:
        UsageError: there is no such format, or an option that the format needs is missing.
        DataError: the input is missing, empty, of no known format, or unusable.
    """
    file = _file_of(path)
    return (find_reader(file) if format_name is None else _named(format_name)).read(file, options)


def find_reader(path: Path) -> Reader:
    """The reader of a file, told by its first bytes.

    Raises:
        DataError: the file cannot be read, is empty, or looks like none of the formats.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not head.strip():
        raise DataError(f"{path} is empty")
    for reader in READERS.values():
        if reader.sniff(head):
            return reader
    raise DataError(f"{path} is in no format that ckh reads", "name one with --from " + "|".join(READERS))


def _named(format_name: str) -> Reader:
    if format_name not in READERS:
        raise UsageError(f"unknown format {format_name!r}", "one of " + ", ".join(READERS))
    return READERS[format_name]


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.jsonl"))
    if len(found) != 1:
        raise DataError(f"{path} holds {len(found)} *.jsonl files", "name the journal itself")
    return found[0]
