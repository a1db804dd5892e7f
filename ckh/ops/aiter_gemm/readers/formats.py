"""Readers of AITER's tuned GEMM tables: its CSV files, and Parquet files of collected tables; and of FBGEMM's choices.

FBGEMM's are the kernels that its dispatch names for shapes: winners of third-party tunings, without times.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.formats import Formats, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.readers.cells import WRONG_CELLS, read_header
from ckh.data.readers.reader import (
    BadRows,
    MissingTime,
    parquet_columns,
    parquet_frame,
    read_bytes,
    source_of,
    source_of_file,
    stated_time,
)
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import store
from ckh.errors import CkhError, DataError
from ckh.files.untrusted import as_text, csv_rows, integer
from ckh.ops.aiter_gemm.kernel import OF_FBGEMM, parse_kernel
from ckh.ops.aiter_gemm.problem import FAMILIES, FBGEMM, OP_TYPE, AiterGemm
from ckh.ops.aiter_gemm.readers.tuned import OTHER_ARCH, TunedRow, tables
from ckh.ops.aiter_gemm.readers.tuned_csv import PREDICTED, TUNED, write_tuned
from ckh.ops.aiter_gemm.tuned_device import compute_units
from ckh.schema import Column, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ckh.ops.aiter_gemm.kernel import AiterKernel

CSV, PARQUET = "aiter-csv", "aiter-parquet"
BAD_CELL = "with a cell that is not a number"

_REQUIRED = ("cu_num", "M", "N", "K", "us", "kernelName")
_BATCHED = "B"
_COLUMNS = (
    Column("family", "string", "", "of kernels", nullable=True),
    Column("gfx", "string", "", "architecture", nullable=True),
    *(Column(name, "int64", "", "") for name in ("cus", "M", "N", "K")),
    Column("q_dtype_w", "string", "", "of the weights", nullable=True),
    Column("kernel", "string", "", "name of the kernel"),
    Column("split_k", "int64", "", ""),
    Column("time_us", "float64", "us", "", nullable=True),
    Column("last", "string", "", "when the table was last changed", nullable=True),
)


def sniff_csv(head: bytes) -> bool:
    """True if the first line has the columns of AITER's tables."""
    names = {name.strip().strip('"') for name in head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").split(",")}
    return names.issuperset(_REQUIRED)


def sniff_parquet(head: bytes) -> bool:
    """True if a Parquet file has the columns of collected tables."""
    return parquet_columns(head).issuperset(column.name for column in _COLUMNS[:-1])


def read_csv(path: Path, options: ReadOptions) -> Reading:
    """Read a tuned table.

    Raises:
        DataError: it is not such a table, has no usable row, or has bad cells that are not to be skipped.
    """
    content = read_bytes(path)
    names = read_header(path, content)
    if missing := [name for name in _REQUIRED if name not in names]:
        raise DataError(
            f"{path}: column {missing[0]} is missing", "expected " + ", ".join(_REQUIRED), code="missing-column"
        )
    if _BATCHED in names:
        raise DataError(f"{path} has batched GEMMs, which are not supported", code="unsupported")
    bad = BadRows()
    rows = list(_csv_rows(path, content, names, bad))
    if not options.skip_bad:
        bad.refuse(path)
    left_out = Counter(bad.left_out())
    stored = store(list(tables(rows, options, path, left_out)), options.output)
    return Reading(stored, (source_of(path, content, CSV),), bad=dict(left_out))


def read_parquet(path: Path, options: ReadOptions) -> Reading:
    """Read a Parquet file of collected tables. For a shape tuned again with the same winner, the last row is used.

    Raises:
        DataError: it cannot be read, lacks a column, or has no usable row.
    """
    frame = parquet_frame(path, _COLUMNS).sort_values("last", kind="stable")
    left_out: Counter[str] = Counter()
    stored = store(list(tables(_frame_rows(frame), options, path, left_out)), options.output)
    return Reading(stored, (source_of_file(path, PARQUET),), bad=dict(left_out))


def _frame_rows(frame: Any) -> Iterator[TunedRow]:
    for row in frame.itertuples(index=False):
        yield TunedRow(
            arch=str(row.gfx or ""),
            num_cus=int(row.cus),
            m=int(row.M),
            n=int(row.N),
            k=int(row.K),
            dtype=str(row.q_dtype_w or ""),
            kernel=str(row.kernel),
            split_k=int(row.split_k),
            time_us=float(row.time_us),
            hint=str(row.family or ""),
        )


def _csv_rows(path: Path, content: bytes, names: list[str], bad: BadRows) -> Iterator[TunedRow]:
    rows = csv_rows(path, as_text(path, content), fills=True)
    next(rows)
    for line, cells in rows:
        if not any(cells):
            continue
        if len(cells) != len(names):
            bad.add(WRONG_CELLS, line, f"{len(cells)} cells instead of {len(names)}")
            continue
        try:
            yield _csv_row(dict(zip(names, cells, strict=True)), path.name)
        except MissingTime:
            bad.without_time.append(line)
        except _Bad as why:
            bad.add(BAD_CELL, line, str(why))


class _Bad(Exception):  # noqa: N818 - a cell, which becomes a `BadRow`
    """A cell that is not a number."""


def _csv_row(row: dict[str, str], name: str) -> TunedRow:
    def number(column: str, convert: Callable[[str], float]) -> float:
        try:
            return convert(row[column])
        except ValueError:
            raise _Bad(f"{column} is {row[column]!r}") from None

    return TunedRow(
        arch=row.get("gfx", ""),
        num_cus=int(number("cu_num", integer)),
        m=int(number("M", integer)),
        n=int(number("N", integer)),
        k=int(number("K", integer)),
        dtype=row.get("q_dtype_w", "").removeprefix("torch."),
        kernel=row["kernelName"],
        split_k=int(number("splitK", integer)) if "splitK" in row else 0,
        time_us=number("us", stated_time),
        hint=name,
        is_predicted=PREDICTED in row and bool(number(PREDICTED, float)),
    )


FBGEMM_FORMAT = "fbgemm-parquet"
OTHER_KIND = "of a kind of GEMM that ckh does not know"
REPLACED = "of a kernel that a later version of FBGEMM replaced"
IMPOSSIBLE = "with a size or kernel that is impossible"
_ARCH, _GPU = "gfx942", "MI300X"  # according to the pull requests that added the tables
_FBGEMM_COLUMNS = (
    Column("op", "string", "", "kind of GEMM"),
    Column("table", "string", "", "shape, or layer: up to this M"),
    *(Column(name, "int64", "", "") for name in ("m", "n", "k")),
    Column("kernel", "string", "", "name of the kernel"),
    Column("groups", "int64", "", "of batched and grouped GEMMs", nullable=True),
    Column("last", "string", "", "when it was last in FBGEMM"),
    Column("repo", "string", "", "of which repository"),
)


def sniff_fbgemm(head: bytes) -> bool:
    """True if a Parquet file has the columns of FBGEMM's collected dispatch."""
    return parquet_columns(head).issuperset(column.name for column in _FBGEMM_COLUMNS if not column.nullable)


def read_fbgemm(path: Path, options: ReadOptions) -> Reading:
    """Read the kernel that FBGEMM last named for each shape.

    Raises:
        DataError: the file cannot be read, lacks a column, has no row, or has an impossible row that is not to be
            skipped.
    """
    frame = parquet_frame(path, _FBGEMM_COLUMNS).sort_values("last", kind="stable")
    left_out: Counter[str] = Counter()
    if (options.arch or _ARCH).split(":", 1)[0] != _ARCH:
        raise DataError(f"{path}: all rows are {OTHER_ARCH}: they are of {_ARCH}", code="empty")
    won: dict[AiterGemm, AiterKernel] = {}
    for row in frame.itertuples(index=False):
        if row.op not in OF_FBGEMM:
            left_out[OTHER_KIND] += 1
            continue
        try:
            kernel = parse_kernel(str(row.kernel))
            problem = _fbgemm_problem(row, kernel.family)
        except CkhError as error:
            if not options.skip_bad:
                raise DataError(
                    f"{path}: a row {IMPOSSIBLE}: {error.message}", "skip such rows with --skip-bad", code="bad-row"
                ) from None
            left_out[IMPOSSIBLE] += 1
            continue
        left_out[REPLACED] += problem in won
        won[problem] = kernel
    if not won:
        raise DataError(f"{path}: no row is of {', '.join(OF_FBGEMM)}", code="empty")
    stored = store([_fbgemm_table(won, path.name)], options.output)
    return Reading(stored, (source_of_file(path, FBGEMM_FORMAT),), bad=dict(+left_out))


def _fbgemm_problem(row: Any, family: str) -> AiterGemm:
    groups = 0 if row.groups is None or row.groups != row.groups else int(row.groups)
    sizes = int(row.m), int(row.n), int(row.k)
    return AiterGemm(*sizes, family, FAMILIES[family][0], FBGEMM, num_cus=compute_units(0, _GPU), groups=groups)


def _fbgemm_table(won: dict[AiterGemm, AiterKernel], run_id: str) -> object:
    results = Results([str(Status.CHOSEN)] * len(won), np.full(len(won), np.nan), {})
    return build_table(Pairs.of(won.items(), OP_TYPE), results, Origin.on_gpu(_ARCH, compute_units(0, _GPU), run_id))


FORMATS = Formats(
    readers=(
        Reader(CSV, sniff_csv, read_csv),
        Reader(PARQUET, sniff_parquet, read_parquet),
        Reader(FBGEMM_FORMAT, sniff_fbgemm, read_fbgemm),
    ),
    rows=(RowsFormat("aiter", "a tuned table of AITER", TUNED, write_tuned),),
)
