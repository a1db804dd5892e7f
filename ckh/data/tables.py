"""Arrow tables of the dataset schema: conversion, validation, Parquet files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.archs import arch_names
from ckh.data.digest import ContentDigest
from ckh.errors import DataError
from ckh.ops import is_operation, operation, operation_names
from ckh.schema import EARLIER_NAMES, MEASURED_NUMBERS, SCHEMA_VERSION, Column, Status
from ckh.text.log import warn
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from ckh.ops.base import AnyOperation

METADATA_KEYS = ("sources", "runs")
BLOCK_ROWS = 1 << 17  # maximum number of rows in a block

KEY = b"ckh"
_OP_TYPE = "op_type"
_TIMES = ("latency_ms", "latency_min_ms")


def arrow_schema(op: AnyOperation) -> pa.Schema:
    """Return the schema of an operation's dataset, with units and descriptions as field metadata."""
    import pyarrow as pa

    return pa.schema(
        pa.field(
            column.name,
            pa.type_for_alias(column.type),
            nullable=column.nullable,
            metadata={"unit": column.unit, "meaning": column.meaning},
        )
        for column in op.training.columns
    )


def compact_type(column: Column) -> pa.DataType:
    """Compact type of a column while rows are read: dictionary encoding for columns of problems, kernels and origins.

    A row is then a few numbers, and columns of the same problem or kernel share their index, until it is written.
    """
    import pyarrow as pa

    plain = pa.type_for_alias(column.type)
    return plain if column.name in MEASURED_NUMBERS else pa.dictionary(pa.int32(), plain)


def compact(table: pa.Table, where: str) -> pa.Table:
    """Select the schema's columns in order, in their compact types."""
    import pyarrow as pa

    op = operation_in(table, where)
    if [field.type for field in table.schema] == [compact_type(column) for column in op.training.columns]:
        return table
    plain = conform(table, where)
    arrays = [
        values.dictionary_encode() if pa.types.is_dictionary(compact_type(column)) else values
        for column, values in zip(op.training.columns, plain.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=op.column_names())


def plain(table: pa.Table) -> pa.Table:
    """Decode dictionary-encoded columns."""
    import pyarrow as pa

    kinds = [field.type for field in table.schema]
    names = zip(table.column_names, kinds, strict=True)
    return table.cast(
        pa.schema([(name, kind.value_type if pa.types.is_dictionary(kind) else kind) for name, kind in names])
    )


def conform(table: pa.Table, where: str) -> pa.Table:
    """Select the schema's columns in order: widen types, add nullable columns, drop others."""
    import pyarrow as pa

    op = operation_in(table, where)
    arrays = [conform_column(table, column, where) for column in op.training.columns]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(op))


def operation_in(table: pa.Table, where: str) -> AnyOperation:
    """Return the operation of a table's rows."""
    import pyarrow.compute as pc
    from pyarrow import types

    if _OP_TYPE not in table.column_names:
        raise _missing(where, _OP_TYPE)
    if types.is_nested(table.column(_OP_TYPE).type):
        raise DataError(
            f"{where}: column {_OP_TYPE} must be string, not {table.column(_OP_TYPE).type}", code="column-type"
        )
    result = [str(name) for name in pc.unique(table.column(_OP_TYPE)).to_pylist()]
    if not result:
        raise DataError(f"{where}: no rows", code="empty")
    if len(result) > 1:
        raise DataError(f"{where}: several operations: {', '.join(result)}", "convert each alone", code="mixed-data")
    if not is_operation(result[0]):
        raise DataError(
            f"{where}: unknown operation {result[0]!r}", one_of(result[0], operation_names()), code="unknown-op"
        )
    return operation(result[0])


def conform_column(table: pa.Table, column: Column, where: str, *, encoded: bool = False) -> pa.ChunkedArray:
    """Convert a column of a table to its type; nulls for a missing nullable column."""
    import pyarrow as pa

    wanted = pa.type_for_alias(column.type)
    if column.name not in table.column_names:
        if not column.nullable:
            raise _missing(where, column.name)
        return pa.chunked_array([pa.nulls(table.num_rows, wanted)])
    values = table.column(column.name)
    if not _fits(values.type, wanted):
        value_type = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        raise DataError(f"{where}: column {column.name} must be {column.type}, not {value_type}", code="column-type")
    wanted = numbered_text(wanted) if encoded else wanted
    try:
        values = values if values.type == wanted else values.cast(wanted)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{where}: column {column.name} must be {column.type}: {_first_line(error)}", code="column-type"
        ) from error
    if values.null_count and not column.nullable:
        raise DataError(f"{where}: column {column.name} has missing values", code="bad-column")
    return values


def numbered_text(kind: pa.DataType) -> pa.DataType:
    """Dictionary type for strings; other types are unchanged."""
    import pyarrow as pa

    return pa.dictionary(pa.int32(), kind) if pa.types.is_string(kind) else kind


def _fits(data_type: pa.DataType, wanted: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(data_type):
        return _fits(data_type.value_type, wanted)
    kinds = (types.is_string, types.is_integer, types.is_boolean, types.is_floating)
    of_found = (
        types.is_string if types.is_large_string(data_type) else next((kind for kind in kinds if kind(data_type)), None)
    )
    return data_type == wanted or types.is_null(data_type) or (of_found is not None and bool(of_found(wanted)))


def check_values(table: pa.Table, where: str) -> None:
    """Refuse invalid values."""
    if not table.num_rows:
        raise DataError(f"{where}: no rows", code="empty")
    op = operation_in(table, where)
    for name in table.column_names:
        _check_column(op, name, table.column(name), where)
    check_times(table.column("is_valid"), table.column("latency_ms"), where)


def check_times(is_valid: pa.ChunkedArray, latency_ms: pa.ChunkedArray, where: str) -> None:
    """Refuse rows marked valid without a positive time."""
    import pyarrow.compute as pc

    timed = pc.fill_null(pc.greater(latency_ms, 0), fill_value=False)
    if pc.any(pc.and_not(is_valid, timed)).as_py():
        raise DataError(f"{where}: column latency_ms has no positive time in a row that is_valid", code="bad-column")


def _check_column(op: AnyOperation, name: str, values: pa.Array | pa.ChunkedArray, where: str) -> None:
    """Refuse invalid values of a column."""
    import pyarrow.compute as pc

    if name in (*op.problems.sizes, *_TIMES) and pc.any(pc.less(values, 0)).as_py():
        raise DataError(f"{where}: column {name} has negative values", code="bad-column")
    if name in _TIMES and pc.any(pc.is_inf(values)).as_py():
        raise DataError(f"{where}: column {name} has infinite values", code="bad-column")
    if name == "arch":
        _require_known(values, arch_names(), f"{where}: column arch")
    if name == "status":
        _require_known(values, [str(status) for status in Status], f"{where}: column status")
    if name == "kernel":
        try:
            for text in pc.unique(values).to_pylist():
                op.kernels.parse(text)
        except DataError as error:
            raise DataError(f"{where}: column {name}: {error.message}", error.hint, code="bad-kernel") from error


def _require_known(values: pa.Array | pa.ChunkedArray, known: Iterable[str], where: str) -> None:
    import pyarrow.compute as pc

    unknown = sorted(set(pc.unique(values).to_pylist()).difference(known))
    if unknown:
        raise DataError(f"{where} holds {unknown[0]!r}", "one of " + ", ".join(known), code="bad-kernel")


def from_pandas(frame: pd.DataFrame, where: str) -> pa.Table:
    """Convert the known columns of a frame; NaN becomes null, whole floats become integers where the schema says so."""
    import pyarrow as pa

    arrays: dict[str, pa.ChunkedArray] = {}
    if _OP_TYPE not in frame.columns:
        raise _missing(where, _OP_TYPE)
    op = operation_in(pa.table({_OP_TYPE: [str(name) for name in frame[_OP_TYPE].unique()]}), where)
    for column in op.training.columns:
        if column.name in frame.columns:
            arrays[column.name] = pa.chunked_array(chunks_of(frame, column, where))
    return pa.table(arrays)


def chunks_of(frame: pd.DataFrame, column: Column, where: str) -> list[pa.Array]:
    """Convert a frame's column to chunks; NaN becomes null, whole floats become integers where the schema says so."""
    import pyarrow as pa

    values = frame[column.name]
    wanted = pa.int64() if column.type == "int64" and values.dtype.kind == "f" else None
    try:
        result = pa.array(values, type=wanted, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"{where}: column {column.name} must be {column.type}: {_first_line(error)}", code="column-type"
        ) from error
    return list(result.chunks) if isinstance(result, pa.ChunkedArray) else [result]


def series_of(values: pa.ChunkedArray, *, is_category: bool, narrow: bool = False) -> pd.Series:
    """Convert a column to a pandas series, optionally with categorical strings and narrow integers."""
    import pandas as pd
    from pyarrow import types

    encoded = values.dictionary_encode() if is_category and types.is_string(values.type) else values
    series: pd.Series = encoded.to_pandas()
    return pd.to_numeric(series, downcast="integer") if narrow and series.dtype.kind == "i" else series


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert a table, compact or not, to a frame."""
    frame: pd.DataFrame = conform(table, "the rows").to_pandas()
    return frame


def one_operation(operations: Iterable[AnyOperation]) -> AnyOperation:
    """Return the common operation of all inputs."""
    by_name = {op.name: op for op in operations}
    if len(by_name) > 1:
        raise DataError(f"several operations: {', '.join(by_name)}", "convert each alone", code="mixed-data")
    return next(iter(by_name.values()))


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
            raise _unreadable(path, _first_line(error)) from error
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
        self.op = self._operation()

    def column(self, column: Column) -> Iterable[pa.Array]:
        """A column by blocks, re-iterable."""
        return ColumnChunks(self.blocks, column.name)

    def blocks(self, names: Container[str]) -> Iterator[pa.Table]:
        """Rows in blocks, with the named columns in the operation's order."""
        import pyarrow as pa

        columns = [column for column in self.op.training.columns if column.name in names]
        for block in self._read([column.name for column in columns]):
            arrays = [conform_column(block, column, str(self.path)) for column in columns]
            yield pa.table(arrays, names=[column.name for column in columns])

    def verify(self, *, predictions: bool = False) -> None:
        """Validate all columns and the checksum of the rows.

        A file without a checksum gives a warning.
        """
        digest = ContentDigest(self.rows)
        for column in self.op.training.columns:
            chunks = self.column(column)
            for chunk in chunks:
                _check_column(self.op, column.name, chunk, str(self.path))
                if column.name == "status" and not predictions:
                    _refuse_predictions(chunk)
            digest.add(column, chunks)
        for block in self.blocks({"is_valid", "latency_ms"}):
            check_times(block["is_valid"], block["latency_ms"], str(self.path))
        result = digest.hexdigest()
        if self.sha256 is None:
            warn_unverified(self.path)
        elif self.sha256 != result:
            raise DataError(
                f"{self.path}: checksum mismatch: content_sha256 is {self.sha256!s:.12}…, the rows have {result:.12}…",
                "the file is damaged or was edited: copy it again, or make it again with ckh convert",
                code="damaged",
            )

    def _operation(self) -> AnyOperation:
        """The operation of all rows."""
        return one_operation(operation_in(block, str(self.path)) for block in self._read([_OP_TYPE]))

    def _read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows in blocks, with those of the named columns that exist."""
        import pyarrow as pa

        known, left = [name for name in names if name in self._names], self.rows
        theirs = [self._names[name] for name in known]
        try:
            for batch in self._file.iter_batches(BLOCK_ROWS, columns=theirs, use_threads=False):
                batch.validate(full=True)
                left -= batch.num_rows
                names_now = [EARLIER_NAMES.get(name, name) for name in batch.schema.names]
                yield pa.Table.from_batches([batch]).rename_columns(names_now)
        except (OSError, ValueError, LookupError, pa.ArrowException) as error:
            raise _unreadable(self.path, _first_line(error)) from error
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


def _refuse_predictions(statuses: pa.Array) -> None:
    if str(Status.PREDICTED) in statuses.unique().to_pylist():
        raise DataError("the data hold predictions of ckh", "train on measured rows only", code="predicted-rows")


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


def _file_metadata(result: dict[bytes, bytes], path: Path) -> dict[str, Any]:
    """Parse the metadata of a file."""
    if KEY not in result:
        raise DataError(f"{path} is not a dataset of ckh", "make one with ckh convert", code="not-a-dataset")
    try:
        document: dict[str, Any] = json.loads(result[KEY])
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


def _missing(where: str, column: str) -> DataError:
    return DataError(f"{where}: column {column} is missing", "run ckh convert again", code="missing-column")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
