"""Parquet files of datasets: reading in blocks, writing, and the checksum of their rows."""

from __future__ import annotations

import base64
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ckh.data import tables
from ckh.data.tables import BLOCK_ROWS, OP_TYPE, first_line
from ckh.errors import DataError
from ckh.schema import (
    CALLING,
    CARD_COLUMNS,
    EARLIER_NAMES,
    GROUPS,
    HOW_MEASURED,
    LAUNCHING,
    REPEATED,
    RESOURCE_NAMES,
    SCHEMA_VERSION,
    WHERE_WHEN,
    WORKSPACE,
    Status,
)
from ckh.text.log import warn
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.ops.base import AnyOperation
    from ckh.schema import Column

T = TypeVar("T")

KEY = b"ckh"
METADATA_KEYS = ("sources", "runs")
# A renamed column is hashed under its former name, so that existing checksums stay valid.
_DIGESTED = {name: earlier for earlier, name in EARLIER_NAMES.items()}
_SINCE = frozenset(
    {*RESOURCE_NAMES, CALLING, *REPEATED, *WHERE_WHEN, *LAUNCHING, *CARD_COLUMNS, WORKSPACE.name, GROUPS.name}
)


class ContentDigest:
    """SHA-256 of `rows` rows, independent of library versions and compression; every column is added in order.

    Columns added to the schema later (`_SINCE`) are skipped where empty, so that older datasets keep their checksum.
    """

    def __init__(self, rows: int) -> None:
        self._digest = hashlib.sha256(f"ckh dataset {SCHEMA_VERSION} {rows}\n".encode())

    def add(self, column: Column, chunks: Iterable[pa.Array]) -> None:
        """Add a column by its values in row order; the chunk boundaries do not matter.

        The chunks are iterated several times.
        """
        if column.name in _SINCE and all(chunk.null_count == len(chunk) for chunk in chunks):
            return
        if column.type == "string":
            self._add_name(column)
            self._add_texts(chunks)
            return
        if column.name in _SINCE and all(_is_empty(chunk).all() for chunk in chunks):
            return
        self._add_name(column)
        rest = np.zeros(0, dtype=bool)
        for chunk in chunks:
            empty = np.concatenate([rest, _is_empty(chunk)])
            rest = empty[len(empty) // 8 * 8 :]
            self._digest.update(np.packbits(empty[: len(empty) - len(rest)]).data)
        self._digest.update(np.packbits(rest).data)
        kind = "<f8" if column.type == "float64" else "<i8"
        for chunk in chunks:
            self._digest.update(np.ascontiguousarray(_numbers(chunk), dtype=kind).data)

    def hexdigest(self) -> str:
        """Return the checksum of the added columns."""
        return self._digest.hexdigest()

    def _add_name(self, column: Column) -> None:
        name = _DIGESTED.get(column.name, column.name)
        self._digest.update(f"{name} {column.type}\n".encode())

    def _add_texts(self, chunks: Iterable[pa.Array]) -> None:
        """Hash each row's index among the distinct strings in order of appearance, -1 for null, then the strings."""
        import pandas as pd

        known: dict[str | None, int] = {None: -1}
        for chunk in chunks:
            encoded = chunk if hasattr(chunk, "dictionary") else chunk.dictionary_encode()
            texts = [*encoded.dictionary.to_pylist(), None]
            codes = encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
            if not known.keys() >= set(texts):
                for place in pd.unique(codes):
                    known.setdefault(texts[place], len(known) - 1)
            # A dictionary entry that no row refers to is not numbered, and its index is never used.
            numbers = np.array([known.get(text, -1) for text in texts], dtype="<i8")
            self._digest.update(numbers[codes].data)
        del known[None]
        self._digest.update(json.dumps(list(known)).encode())


def _is_empty(chunk: pa.Array) -> NDArray[np.bool_]:
    """Mask of values that are null or NaN."""
    distinct = chunk.dictionary if hasattr(chunk, "dictionary") else chunk
    if not chunk.null_count and not distinct.null_count and str(distinct.type) not in {"double", "float", "halffloat"}:
        return np.zeros(len(chunk), dtype=bool)
    mask: NDArray[np.bool_] = _plain(chunk).is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return mask


def _plain(chunk: pa.Array) -> pa.Array:
    """Decode a dictionary-encoded array."""
    return chunk.cast(chunk.type.value_type) if hasattr(chunk, "dictionary") else chunk


def _numbers(chunk: pa.Array) -> NDArray[np.generic]:
    """Values with nulls replaced by 0."""
    import pyarrow as pa

    chunk = _plain(chunk)
    if pa.types.is_null(chunk.type):
        return np.zeros(len(chunk))
    filled = chunk.fill_null(pa.scalar(0).cast(chunk.type)) if chunk.null_count else chunk
    values: NDArray[np.generic] = filled.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), 0.0, values)
    return values


class DatasetFile:
    """A Parquet file of a dataset, read in blocks of rows."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        try:
            self._file = pq.ParquetFile(path, pre_buffer=False)
            schema = self._file.schema_arrow
        except FileNotFoundError:
            raise DataError(f"no such file: {path}", code="no-file") from None
        except (OSError, ValueError, LookupError, pa.ArrowException) as error:
            raise _unreadable(path, first_line(error)) from error
        self._names = {EARLIER_NAMES.get(name, name): name for name in schema.names}
        if len(self._names) < len(schema.names):
            raise DataError(
                f"{path}: a column occurs twice", "make the dataset again with ckh convert", code="duplicate-column"
            )
        document = _file_metadata(schema.metadata or {}, path)
        self.metadata: dict[str, Any] = {key: document[key] for key in METADATA_KEYS}
        self.sha256 = document.get("content_sha256")
        self.rows: int = self._file.metadata.num_rows
        if not self.rows:
            raise DataError(f"{path}: no rows", code="empty")
        if self.rows > max(BLOCK_ROWS, path.stat().st_size):
            raise DataError(f"{path} states {self.rows} rows, more than its bytes", code="damaged")
        self.op = tables.one_operation(tables.operation_in(block, str(path)) for block in self._read([OP_TYPE]))

    def column(self, column: Column) -> Iterable[pa.Array]:
        """A column by blocks, re-iterable."""
        return ColumnChunks(self.blocks, column.name)

    def blocks(self, names: Container[str]) -> Iterator[pa.Table]:
        """Rows in blocks, with the named columns in the operation's order."""
        import pyarrow as pa

        columns = [column for column in self.op.training.columns if column.name in names]
        for block in self._read([column.name for column in columns]):
            arrays = [tables.conform_column(block, column, str(self.path)) for column in columns]
            yield pa.table(arrays, names=[column.name for column in columns])

    def verify(self, *, predictions: bool = False) -> None:
        """Validate all columns and the checksum of the rows.

        A file without a checksum gives a warning.
        """
        digest = ContentDigest(self.rows)
        for column in self.op.training.columns:
            chunks = self.column(column)
            for chunk in chunks:
                tables.check_column(self.op, column.name, chunk, str(self.path))
                if column.name == "status" and not predictions and Status.PREDICTED in chunk.unique().to_pylist():
                    text = "the data hold predictions of ckh"
                    raise DataError(text, "train on measured rows only", code="predicted-rows")
            digest.add(column, chunks)
        for block in self.blocks({"is_valid", "latency_ms"}):
            tables.check_times(block["is_valid"], block["latency_ms"], str(self.path))
        sha256 = digest.hexdigest()
        if self.sha256 is None:
            warn_unverified(self.path)
        elif self.sha256 != sha256:
            raise DataError(
                f"{self.path}: checksum mismatch: content_sha256 is {self.sha256!s:.12}…, the rows have {sha256:.12}…",
                "the file is damaged or was edited: copy it again, or make it again with ckh convert",
                code="damaged",
            )

    def _read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows in blocks, with those of the named columns that exist."""
        import pyarrow as pa

        known, left = [name for name in names if name in self._names], self.rows
        stored_names = [self._names[name] for name in known]
        try:
            for batch in self._file.iter_batches(BLOCK_ROWS, columns=stored_names, use_threads=False):
                batch.validate(full=True)
                left -= batch.num_rows
                names_now = [EARLIER_NAMES.get(name, name) for name in batch.schema.names]
                yield pa.Table.from_batches([batch]).rename_columns(names_now)
        except (OSError, ValueError, LookupError, pa.ArrowException) as error:
            raise _unreadable(self.path, first_line(error)) from error
        if left:
            raise _unreadable(self.path, f"{', '.join(known)}: {self.rows - left} rows instead of {self.rows}")


@dataclass(frozen=True, slots=True)
class ColumnChunks:
    """The chunks of a column, re-iterable; `blocks` yields the rows with the named columns."""

    blocks: Callable[[list[str]], Iterator[pa.Table]]
    name: str

    def __iter__(self) -> Iterator[pa.Array]:
        for block in self.blocks([self.name]):
            yield from block[self.name].chunks


def warn_unverified(path: Path) -> None:
    """Warn that a Parquet file has no checksum of its rows."""
    warn(f"{path} has no content_sha256: its rows are not verified", "unverified")


def _unreadable(path: Path, why: str) -> DataError:
    return DataError(
        f"cannot read {path}: {why}", "is it a whole Parquet file? ckh convert makes one", code="unreadable"
    )


def is_dataset(path: Path) -> bool:
    """Return True if a file is a dataset of ckh, of any schema version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def _file_metadata(metadata: dict[bytes, bytes], path: Path) -> dict[str, Any]:
    """Parse the metadata of a file."""
    if KEY not in metadata:
        raise DataError(f"{path} is not a dataset of ckh", "make one with ckh convert", code="not-a-dataset")
    try:
        document: dict[str, Any] = json.loads(metadata[KEY])
        version = document["schema_version"]
        missing = [key for key in METADATA_KEYS if not isinstance(document.get(key), list)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path) from error
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{path} has schema version {version}, this ckh reads {SCHEMA_VERSION}",
            "make it again with ckh convert",
            code="other-version",
        )
    if missing:
        raise _damaged(path)
    return document


def _damaged(path: Path) -> DataError:
    return DataError(f"{path}: its metadata is damaged", "make it again with ckh convert", code="damaged")


def write_parquet(
    file: BinaryIO, op: AnyOperation, blocks: Iterable[pa.Table], metadata: dict[str, Any], content_sha256: str
) -> None:
    """Write blocks of rows as one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    document = {
        "schema_version": SCHEMA_VERSION,
        "ckh_version": __version__,
        "how_measured": HOW_MEASURED,
        "content_sha256": content_sha256,
        **{key: metadata[key] for key in METADATA_KEYS},
    }
    # Measured numbers are nearly all distinct: dictionary encoding would take more time and space.
    numbered = [column.name for column in op.training.columns if column.type != "float64"]
    compression = {column.name: "snappy" if column.name in numbered else "zstd" for column in op.training.columns}
    # Strings are written as dictionary indices, which is faster; the schema that readers see says string.
    file_metadata = {KEY: json.dumps(document, allow_nan=False).encode()}
    schema = tables.arrow_schema(op).with_metadata(file_metadata)
    written = pa.schema(field.with_type(tables.numbered_text(field.type)) for field in schema)
    options = {"compression": compression, "use_dictionary": numbered, "store_schema": False}

    def as_written(block: pa.Table) -> pa.Table:
        columns = (tables.conform_column(block, column, "the dataset", encoded=True) for column in op.training.columns)
        return pa.Table.from_arrays(list(map(_unique, columns)), schema=written)

    with pq.ParquetWriter(file, written, **options) as writer:
        writer.add_key_value_metadata({**file_metadata, b"ARROW:schema": base64.b64encode(schema.serialize())})
        for table in ahead(map(as_written, blocks)):
            writer.write_table(table)


def _unique(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Remove duplicates from the dictionary of an encoded column."""
    import pyarrow as pa

    def chunk_of(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
        distinct = chunk.dictionary.dictionary_encode()
        return pa.DictionaryArray.from_arrays(distinct.indices.take(chunk.indices), distinct.dictionary)

    is_numbered = pa.types.is_dictionary(column.type)
    return pa.chunked_array(map(chunk_of, column.chunks), column.type) if is_numbered else column


def ahead(items: Iterable[T]) -> Iterator[T]:
    """Compute each item in a thread while the previous item is used; keeps one additional item in memory.

    Pays off where both sides work outside of Python: disk, Arrow, checksums.
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, iterator, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, iterator, end)
            yield item  # type: ignore[misc]
