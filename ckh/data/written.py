"""Writer of the Parquet files of datasets."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.data import tables
from ckh.schema import HOW_MEASURED, SCHEMA_VERSION
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    import pyarrow as pa

    from ckh.ops.base import AnyOperation


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
        **{key: metadata[key] for key in tables.METADATA_KEYS},
    }
    # Measured numbers are nearly all distinct: dictionary encoding would take more time and space.
    numbered = [column.name for column in op.training.columns if column.type != "float64"]
    compression = {column.name: "snappy" if column.name in numbered else "zstd" for column in op.training.columns}
    # Strings are written as dictionary indices, which is faster; the schema that readers see says string.
    result = {tables.KEY: json.dumps(document, allow_nan=False).encode()}
    schema = tables.arrow_schema(op).with_metadata(result)
    written = pa.schema(field.with_type(tables.numbered_text(field.type)) for field in schema)
    options = {"compression": compression, "use_dictionary": numbered, "store_schema": False}
    with pq.ParquetWriter(file, written, **options) as writer:
        writer.add_key_value_metadata({**result, b"ARROW:schema": base64.b64encode(schema.serialize())})
        for table in ahead(_as_written(block, op, written) for block in blocks):
            writer.write_table(table)


def _as_written(block: pa.Table, op: AnyOperation, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    arrays = [
        _unique(tables.conform_column(block, column, "the dataset", encoded=True)) for column in op.training.columns
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _unique(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Remove duplicates from the dictionary of an encoded column."""
    import pyarrow as pa

    def chunk_of(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
        distinct = chunk.dictionary.dictionary_encode()
        return pa.DictionaryArray.from_arrays(distinct.indices.take(chunk.indices), distinct.dictionary)

    is_numbered = pa.types.is_dictionary(column.type)
    return pa.chunked_array(map(chunk_of, column.chunks), column.type) if is_numbered else column


T = TypeVar("T")


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
