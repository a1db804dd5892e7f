"""Arrow tables of the dataset schema: conversion, validation, Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.archs import arch_names
from ckh.errors import DataError
from ckh.ops import is_operation, operation, operation_names
from ckh.schema import MEASURED_NUMBERS, Column, Status
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    import pyarrow as pa

    from ckh.ops.base import AnyOperation

BLOCK_ROWS = 1 << 17  # maximum number of rows in a block

OP_TYPE = "op_type"
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

    kind = pa.type_for_alias(column.type)
    return kind if column.name in MEASURED_NUMBERS else pa.dictionary(pa.int32(), kind)


def compact(table: pa.Table, where: str) -> pa.Table:
    """Select the schema's columns in order, in their compact types."""
    import pyarrow as pa

    op = operation_in(table, where)
    if [field.type for field in table.schema] == [compact_type(column) for column in op.training.columns]:
        return table
    conformed = conform(table, where)
    arrays = [
        array.dictionary_encode() if pa.types.is_dictionary(compact_type(column)) else array
        for column, array in zip(op.training.columns, conformed.columns, strict=True)
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

    if OP_TYPE not in table.column_names:
        raise _missing(where, OP_TYPE)
    if types.is_nested(table.column(OP_TYPE).type):
        raise DataError(
            f"{where}: column {OP_TYPE} must be string, not {table.column(OP_TYPE).type}", code="column-type"
        )
    names = [str(name) for name in pc.unique(table.column(OP_TYPE)).to_pylist()]
    if not names:
        raise DataError(f"{where}: no rows", code="empty")
    if len(names) > 1:
        raise DataError(f"{where}: several operations: {', '.join(names)}", "convert each alone", code="mixed-data")
    if not is_operation(names[0]):
        raise DataError(
            f"{where}: unknown operation {names[0]!r}", one_of(names[0], operation_names()), code="unknown-op"
        )
    return operation(names[0])


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
            f"{where}: column {column.name} must be {column.type}: {first_line(error)}", code="column-type"
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
    is_of_kind = (
        types.is_string if types.is_large_string(data_type) else next((kind for kind in kinds if kind(data_type)), None)
    )
    return data_type == wanted or types.is_null(data_type) or (is_of_kind is not None and bool(is_of_kind(wanted)))


def check_values(table: pa.Table, where: str) -> None:
    """Refuse invalid values."""
    if not table.num_rows:
        raise DataError(f"{where}: no rows", code="empty")
    op = operation_in(table, where)
    for name in table.column_names:
        check_column(op, name, table.column(name), where)
    check_times(table.column("is_valid"), table.column("latency_ms"), where)


def check_times(is_valid: pa.ChunkedArray, latency_ms: pa.ChunkedArray, where: str) -> None:
    """Refuse rows marked valid without a positive time."""
    import pyarrow.compute as pc

    timed = pc.fill_null(pc.greater(latency_ms, 0), fill_value=False)
    if pc.any(pc.and_not(is_valid, timed)).as_py():
        raise DataError(f"{where}: column latency_ms has no positive time in a row that is_valid", code="bad-column")


def check_column(op: AnyOperation, name: str, values: pa.Array | pa.ChunkedArray, where: str) -> None:
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
    if OP_TYPE not in frame.columns:
        raise _missing(where, OP_TYPE)
    op = operation_in(pa.table({OP_TYPE: [str(name) for name in frame[OP_TYPE].unique()]}), where)
    for column in op.training.columns:
        if column.name in frame.columns:
            arrays[column.name] = pa.chunked_array(chunks_of(frame, column, where))
    return pa.table(arrays)


def chunks_of(frame: pd.DataFrame, column: Column, where: str) -> list[pa.Array]:
    """Convert a frame's column to chunks; NaN becomes null, whole floats become integers where the schema says so."""
    import pyarrow as pa

    series = frame[column.name]
    wanted = pa.int64() if column.type == "int64" and series.dtype.kind == "f" else None
    try:
        converted = pa.array(series, type=wanted, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"{where}: column {column.name} must be {column.type}: {first_line(error)}", code="column-type"
        ) from error
    return list(converted.chunks) if isinstance(converted, pa.ChunkedArray) else [converted]


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


def _missing(where: str, column: str) -> DataError:
    return DataError(f"{where}: column {column} is missing", "run ckh convert again", code="missing-column")


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
