"""Arrow tables of the dataset schema: conforming, checking, and Parquet bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh import __version__
from ckh.data.schema import HOW_MEASURED, SCHEMA_VERSION, Column, Status
from ckh.errors import DataError
from ckh.ops import operation, operation_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from ckh.ops.base import Operation

METADATA_KEYS = ("sources", "runs")

_KEY = b"ckh"
_OP_TYPE = "op_type"
_TIMES = ("latency_ms", "latency_min_ms")


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """The table and the metadata of one Parquet file."""

    table: pa.Table
    metadata: dict[str, Any]


def arrow_schema(op: Operation) -> pa.Schema:
    """The schema of an operation's dataset, with unit and meaning as metadata of each field."""
    import pyarrow as pa

    return pa.schema(
        pa.field(
            column.name,
            pa.type_for_alias(column.type),
            nullable=column.nullable,
            metadata={"unit": column.unit, "meaning": column.meaning},
        )
        for column in op.columns
    )


def conform(table: pa.Table, where: str) -> pa.Table:
    """The schema's columns in order: narrower types widened, missing nullable columns null, others dropped.

    Raises:
        DataError: a column that may not be null is missing, or a type does not fit.
    """
    import pyarrow as pa

    op = operation_in(table, where)
    arrays = [_conform_column(table, column, where) for column in op.columns]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(op))


def operation_in(table: pa.Table, where: str) -> Operation:
    """The one operation of a table's rows.

    Raises:
        DataError: the column is missing or empty, or the rows are of several operations, or of one ckh does not have.
    """
    import pyarrow.compute as pc

    if _OP_TYPE not in table.column_names:
        raise DataError(f"{where}: column {_OP_TYPE} is missing", "make the dataset again with ckh convert")
    found = [str(name) for name in pc.unique(table.column(_OP_TYPE)).to_pylist()]
    if not found:
        raise DataError(f"{where}: there are no rows")
    if len(found) > 1:
        raise DataError(f"{where}: the rows are of several operations: {', '.join(found)}", "convert each by itself")
    if found[0] not in operation_names():
        raise DataError(f"{where}: ckh has no operation {found[0]!r}", "it has " + ", ".join(operation_names()))
    return operation(found[0])


def _conform_column(table: pa.Table, column: Column, where: str) -> pa.ChunkedArray:
    import pyarrow as pa

    wanted = pa.type_for_alias(column.type)
    if column.name not in table.column_names:
        if not column.nullable:
            raise DataError(f"{where}: column {column.name} is missing", "make the dataset again with ckh convert")
        return pa.chunked_array([pa.nulls(table.num_rows, wanted)])
    values = table.column(column.name)
    if not _fits(values.type, wanted):
        raise DataError(f"{where}: column {column.name} must be {column.type}, not {values.type}")
    values = values if values.type == wanted else values.cast(wanted)
    if values.null_count and not column.nullable:
        raise DataError(f"{where}: column {column.name} is empty in {values.null_count} rows")
    return values


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(found):
        return _fits(found.value_type, wanted)
    kinds = (types.is_string, types.is_integer, types.is_boolean, types.is_floating)
    of_found = types.is_string if types.is_large_string(found) else next((kind for kind in kinds if kind(found)), None)
    return found == wanted or types.is_null(found) or (of_found is not None and bool(of_found(wanted)))


def check_values(table: pa.Table, where: str) -> None:
    """Refuse impossible values.

    Raises:
        DataError: there are no rows, a status is unknown, a size or time is negative, or a row counts as valid
            without a positive time; names `where` and the column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not table.num_rows:
        raise DataError(f"{where}: there are no rows")
    for name in (*operation_in(table, where).sizes, *_TIMES):
        bad = int(pc.sum(pc.less(table.column(name), 0)).as_py() or 0)
        if bad:
            raise DataError(f"{where}: column {name} is negative in {bad} rows")
    unknown = pc.invert(pc.is_in(table.column("status"), pa.array([str(status) for status in Status])))
    if pc.any(unknown).as_py():
        raise DataError(f"{where}: column status holds {pc.filter(table.column('status'), unknown)[0].as_py()!r}")
    timed = pc.fill_null(pc.greater(table.column("latency_ms"), 0), fill_value=False)
    if pc.any(pc.and_not(table.column("is_valid"), timed)).as_py():
        raise DataError(f"{where}: column latency_ms has no positive time in a row that is_valid")


def from_pandas(frame: pd.DataFrame, where: str) -> pa.Table:
    """The known columns of a frame; NaN becomes null, and whole floats integers where the schema wants them.

    Raises:
        DataError: a column holds mixed types, or an integer column a fraction.
    """
    import pyarrow as pa

    arrays: dict[str, pa.ChunkedArray] = {}
    if _OP_TYPE not in frame.columns:
        raise DataError(f"{where}: column {_OP_TYPE} is missing", "make the dataset again with ckh convert")
    op = operation_in(pa.table({_OP_TYPE: [str(name) for name in frame[_OP_TYPE].unique()]}), where)
    for column in op.columns:
        if column.name not in frame.columns:
            continue
        values = frame[column.name]
        wanted = pa.int64() if column.type == "int64" and values.dtype.kind == "f" else None
        try:
            arrays[column.name] = pa.chunked_array(_chunks(pa.array(values, type=wanted, from_pandas=True)))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"{where}: column {column.name} must be {column.type}: {_first_line(error)}") from error
    return pa.table(arrays)


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A frame of a table that conforms."""
    frame: pd.DataFrame = table.to_pandas()
    return frame


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of tables that conform.

    Raises:
        DataError: they are of several operations.
    """
    import pyarrow as pa

    names = dict.fromkeys(operation_in(table, "an input").name for table in tables)
    if len(names) > 1:
        raise DataError(f"the inputs are of several operations: {', '.join(names)}", "convert and use each by itself")
    return pa.concat_tables(tables)


def read(path: Path) -> FilePart:
    """Read one Parquet file and check it.

    Raises:
        DataError: it is missing, damaged, empty, not a dataset of this schema version, or its values are impossible.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        raw = pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {_first_line(error)}", "is it a whole Parquet file?") from error
    metadata = _file_metadata(raw.schema.metadata or {}, path)
    table = conform(raw, str(path))
    check_values(table, str(path))
    return FilePart(table, metadata)


def is_dataset(path: Path) -> bool:
    """Whether a file is a dataset of ckh, of whatever schema version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def to_parquet(frame: pd.DataFrame, metadata: dict[str, Any], content_sha256: str) -> bytes:
    """The bytes of a Parquet file of the frame."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    document = {
        "schema_version": SCHEMA_VERSION,
        "ckh_version": __version__,
        "how_measured": HOW_MEASURED,
        "content_sha256": content_sha256,
        **{key: metadata[key] for key in METADATA_KEYS},
    }
    table = conform(from_pandas(frame, "the dataset"), "the dataset")
    table = table.replace_schema_metadata({_KEY: json.dumps(document, allow_nan=False)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _file_metadata(found: dict[bytes, bytes], path: Path) -> dict[str, Any]:
    if _KEY not in found:
        raise DataError(f"{path} is not a dataset of ckh", "make one with ckh convert")
    try:
        document: dict[str, Any] = json.loads(found[_KEY])
        version = document["schema_version"]
        metadata = {key: document[key] for key in METADATA_KEYS} if version == SCHEMA_VERSION else {}
    except (ValueError, KeyError) as error:
        raise DataError(f"{path}: its metadata is damaged", "make it again with ckh convert") from error
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{path} has schema version {version}, this ckh reads {SCHEMA_VERSION}", "make it again with ckh convert"
        )
    return metadata


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    import pyarrow as pa

    return list(array.chunks) if isinstance(array, pa.ChunkedArray) else [array]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
