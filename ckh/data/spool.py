"""Rows spilled to disk during conversion, so that memory does not grow with their number.

The files are unnamed: the system deletes them when the process ends, however it ends.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data import tables
from ckh.data.numbering import address_of
from ckh.data.tables import BLOCK_ROWS
from ckh.errors import OutputError
from ckh.files.outputs import existing_parent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class _StoredArray:
    """Location of an array in a file, and its type."""

    start: int
    size: int
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class _StoredBlock:
    """Rows that were added together: index of the first, their number, and the pieces of each column.

    The pieces are a dictionary column's indices and values, or the values alone.
    """

    start: int
    count: int
    columns: dict[str, tuple[_StoredArray, ...]]


class _UnnamedFile:
    """An unnamed file beside an output, or in the system's temporary folder."""

    def __init__(self, output: Path | None) -> None:
        folder = tempfile.gettempdir() if output is None else existing_parent(output)
        self._where = output or folder
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 # closed with this object
        except OSError as error:
            raise self._failure(error) from error
        self._size = 0
        weakref.finalize(self, self._file.close)

    def append(self, content: Any) -> int:
        """Append bytes and return their offset."""
        left = memoryview(content).cast("B")
        start = self._size
        self._size += len(left)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._failure(error) from error
        return start

    def read(self, start: int, size: int) -> bytes:
        """Read `size` bytes, fewer than 2 GiB."""
        content = os.pread(self._file.fileno(), size, start)
        if len(content) < size:
            raise self._failure(OSError(0, "the file is shorter than what was written"))
        return content

    def _failure(self, error: OSError) -> OutputError:
        return OutputError(
            f"cannot write {self._where}: {error.strerror}",
            "while they are converted rows are kept beside it",
            code="unwritable",
        )


class StoredRows:
    """Rows of a compact table on disk, in insertion order; rows can be dropped.

    Columns that share their indices share them on disk too: each array is written once. The file is beside `output`, by
    default in the system's temporary folder.
    """

    def __init__(self, output: Path | None = None) -> None:
        self._file = _UnnamedFile(output)
        self._blocks: list[_StoredBlock] = []
        self._dropped = np.zeros(0, dtype=bool)
        self.added = 0

    def __len__(self) -> int:
        """Number of rows not dropped."""
        return self.added - int(self._dropped.sum())

    def add(self, table: pa.Table) -> None:
        """Add the rows of a table, compact or not, of the same operation as earlier ones."""
        table = tables.compact(table, "an input")
        pieces: dict[Any, _StoredArray] = {}
        for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
            columns = {
                name: tuple(self._put(part, pieces) for part in _parts(column))
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            self._blocks.append(_StoredBlock(self.added, len(batch), columns))
            self.added += len(batch)

    def drop(self, numbers: NDArray[np.int64]) -> None:
        """Drop rows by index, each at most once; the other indices do not change."""
        if len(numbers):
            self._dropped = np.append(self._dropped, np.zeros(self.added - len(self._dropped), dtype=bool))
            self._dropped[numbers] = True

    def kept(self, start: int, count: int) -> NDArray[np.bool_]:
        """Mask of `count` rows from `start` that were not dropped."""
        dropped = self._dropped[start : start + count]
        return np.append(~dropped, np.ones(count - len(dropped), dtype=bool))

    def all_blocks(self, names: Sequence[str] | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Yield all rows, dropped ones included: first index and table of each block, with all or the named columns."""
        import pyarrow as pa

        for block in self._blocks:
            known: dict[_StoredArray, pa.Array] = {}
            columns = {
                name: [self._get(piece, known) for piece in block.columns[name]] for name in names or block.columns
            }
            yield (
                block.start,
                pa.table(
                    {
                        name: pa.DictionaryArray.from_arrays(*parts, safe=False) if len(parts) > 1 else parts[0]
                        for name, parts in columns.items()
                    }
                ),
            )

    def table(self) -> pa.Table:
        """Load the rows that were not dropped into memory."""
        import pyarrow as pa

        return pa.concat_tables(table.filter(self.kept(start, len(table))) for start, table in self.all_blocks())

    def _put(self, array: pa.Array, known: dict[Any, _StoredArray]) -> _StoredArray:
        import pyarrow as pa

        key = array.type, len(array), address_of(array)
        if key not in known:
            content = pa.RecordBatch.from_arrays([array], names=[""]).serialize()
            known[key] = _StoredArray(self._file.append(content), content.size, array.type)
        return known[key]

    def _get(self, piece: _StoredArray, known: dict[_StoredArray, pa.Array]) -> pa.Array:
        import pyarrow as pa

        if piece not in known:
            content = pa.py_buffer(self._file.read(piece.start, piece.size))
            known[piece] = pa.ipc.read_record_batch(content, pa.schema([("", piece.type)])).column(0)
        return known[piece]


def store(blocks: Iterable[pa.Table], output: Path | None = None) -> StoredRows:
    """Store the rows of tables, consumed one by one."""
    rows = StoredRows(output)
    for table in blocks:
        rows.add(table)
    return rows


class Buckets:
    """Records on disk by bucket number, in insertion order within each bucket."""

    def __init__(self, kind: np.dtype[Any], output: Path | None = None) -> None:
        self._file = _UnnamedFile(output)
        self.kind = kind
        self._parts: dict[int, list[tuple[int, int]]] = {}

    def add(self, records: NDArray[Any], bucket: NDArray[Any]) -> None:
        """Add records, each to its bucket."""
        order = np.argsort(bucket, kind="stable")
        start = self._file.append(records.take(order).view(np.uint8))  # ten times as fast as records[order]
        ordered = bucket[order]
        first = np.append(0, np.flatnonzero(np.diff(ordered)) + 1)[: len(ordered)]
        sizes = np.diff(first, append=len(ordered)) * self.kind.itemsize
        for number, size in zip(ordered[first].tolist(), sizes.tolist(), strict=True):
            self._parts.setdefault(number, []).append((start, size))
            start += size

    def read(self, number: int) -> NDArray[Any]:
        """Read the records of a bucket."""
        content = bytearray().join(self._file.read(*part) for part in self._parts.get(number, []))
        return np.frombuffer(content, dtype=self.kind)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield the records of each bucket."""
        for number in sorted(self._parts):
            yield self.read(number)


def _parts(column: pa.Array) -> tuple[pa.Array, ...]:
    return (column.indices, column.dictionary) if hasattr(column, "dictionary") else (column,)
