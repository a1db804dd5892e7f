"""Conversion of inputs to a dataset file: read, merge, write, and count what became of the rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ckh.data import tables
from ckh.data.dataset import DATASET, save_blocks
from ckh.data.merge import between_runs, merge
from ckh.data.peaks import ABOVE, drop_impossible
from ckh.data.readers import formats_of, read_input, read_mapped
from ckh.data.readers.named_table import frame_table
from ckh.documents import Document
from ckh.errors import DataError, UsageError
from ckh.files.account import Account
from ckh.ops import operation, operation_names
from ckh.records import Record
from ckh.text.log import warn
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from ckh.data.dataset import Dataset
    from ckh.data.formats import Reading, ReadOptions, RowsFormat
    from ckh.files.outputs import FileKind


PARQUET = "parquet"  # the name of the dataset's own format


@cache
def output_formats() -> dict[str, RowsFormat]:
    """Output formats of the operations, other than Parquet, by name."""
    formats: dict[str, RowsFormat] = {}
    for name in operation_names():
        for written in formats_of(operation(name)).rows:
            formats.setdefault(written.name, written)
    return formats


def output_kind(name: str) -> FileKind:
    """Return the kind of file of an output format."""
    if name == PARQUET:
        return DATASET
    if name not in output_formats():
        raise UsageError(f"unknown format {name!r}", one_of(name, (PARQUET, *output_formats())), code="unknown-name")
    return output_formats()[name].kind


class ConversionSummary(Record):
    """Counts of a conversion."""

    rows: int
    valid: int
    """Rows with a usable time."""
    problems: int
    kernels: int
    archs: tuple[str, ...]
    variants: tuple[str, ...]
    """Directions."""
    by_status: dict[str, int]
    """Rows by status."""
    dropped: dict[str, int]
    """Rows that are not used, by reason: those of `left_out` and `bad`."""
    left_out: dict[str, int]
    """Rows that ckh knows and leaves out, by reason."""
    bad: dict[str, int]
    """Rows that ckh does not understand, by reason."""
    superseded: int
    """Rows replaced by a later row of the same run."""
    repeated: int
    """Rows replaced by a row of another run."""
    tried: dict[str, int]
    """Tables of winners, by what their tuners tried, inferred from the winners: values of columns of kernels."""
    sha256: str
    """Hash of the dataset's content."""
    warnings: tuple[str, ...]


class ConvertDocument(ConversionSummary, Document):
    """ckh convert --json: what became of the rows."""

    schema = "convert"

    out: str
    """The output file."""
    holdout: str | None
    """With --split: the file of the problems held out."""
    next: str | None
    """The suggested next command."""


def convert(
    inputs: Sequence[Path],
    out: Path,
    options: ReadOptions,
    *,
    format_name: str | None = None,
    to: str = PARQUET,
) -> ConversionSummary:
    """Merge journals, run folders and CSV files into one dataset file; nothing is written on failure."""
    import pyarrow.compute as pc

    # Rows spill to a file beside the output: the system's temporary folder may be too small.
    options = replace(options, output=out)
    readings = [_possible(read_input(path, options, format_name), options) for path in inputs]
    merged = merge(readings, output=out)
    account = Account()
    for path, reading in zip(inputs, readings, strict=True):
        reading.account.report(str(path))
        account.add(reading.account)
    warnings = [warning for reading in readings for warning in reading.warnings]
    warnings += [str(merged.noise)] if merged.noise is not None else []
    warnings += filter(None, [between_runs(merged.dataset)] if merged.op.apart else [])
    if to == PARQUET:
        save_blocks(out, merged.op, merged.blocks(), merged.metadata, merged.content_hash)
    else:
        written = next((known for known in formats_of(merged.op).rows if known.name == to), None)
        if written is None:
            raise DataError(f"{merged.op.name} has no format {to}", "write Parquet", code="unsupported")
        warnings += written.write(merged, out)
    stated = [source["tried"] for source in merged.metadata["sources"] if "tried" in source]
    return ConversionSummary(
        rows=len(merged),
        valid=sum(int(pc.sum(block["is_valid"]).as_py()) for block in merged.blocks(["is_valid"])),
        problems=merged.problems,
        kernels=len(merged.distinct("kernel")),
        archs=merged.distinct("arch"),
        variants=merged.distinct("variant") if merged.op.has_directions else (),
        by_status=merged.by_status(),
        dropped=account.left_out,
        left_out=account.named(account.known),
        bad=account.named(account.bad),
        superseded=merged.superseded,
        repeated=merged.repeated,
        tried=dict(Counter(", ".join(f"{name} {values}" for name, values in each.items()) for each in stated)),
        sha256=merged.content_hash,
        warnings=tuple(warnings),
    )


def dataset_of_frame(frame: pd.DataFrame, options: ReadOptions) -> Dataset:
    """Convert a data frame, whose columns are an operation's or mapped to them, to a dataset."""
    reading = _possible(read_mapped(frame_table(frame), options), options)
    reading.account.report("the data frame")
    for warning in reading.warnings:
        warn(warning, "conversion")
    return merge([reading]).dataset


def _possible(reading: Reading, options: ReadOptions) -> Reading:
    """Leave out the rows with impossible times, unless they are to be taken as they are."""
    operations = [tables.operation_in(table, "an input") for _, table in reading.rows.all_blocks(["op_type"])]
    if not options.peak_check or not operations:
        return reading
    where = ", ".join(str(source["name"]) for source in reading.sources)
    count = drop_impossible(reading.rows, tables.one_operation(operations), where)
    if count:
        reading.account.used -= count
        reading.account.leave_out(ABOVE, count=count)
    return reading
