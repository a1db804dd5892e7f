"""Reader and writer of AMD's tables of grouped convolutions: the benchmark's CSV, and Parquet that is made from it.

CSV files have 24 columns, or the older 17 of 2D without depth and dilations, which are then 1. `problem_idx` is
ignored: problems are distinguished by all of their sizes. The columns that `convert_csv_to_parquet.py` adds (tiles with
its own names, a hardware profile that is a table in the script) follow from the name and the architecture, and are
ignored.
Rows of one problem and kernel are repeated measurements (`Reading.repeats`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.data.formats import Formats, MappedTable, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.numbering import Numbering
from ckh.data.readers.cells import (
    TIMES,
    Cells,
    Faults,
    integers,
    numbers,
    parquet_columns,
    time_column,
    times_ms,
    true_cells,
)
from ckh.data.readers.named_table import Table, header_of, open_table, require_columns
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.data.tables import plain
from ckh.errors import DataError, UsageError
from ckh.files.account import LeftOut
from ckh.files.outputs import FileKind, head_of, open_output
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.grouped_conv.features import GROUPED_CONV
from ckh.ops.grouped_conv.kernel import amd_short_name, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.operation import CONV_IDENTITY
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, ConvProblem
from ckh.ops.table_rows import BAD_KERNEL, TableRows, distinct_problems
from ckh.schema import SHORTEST_MS, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.data.formats import MeasuredRows
    from ckh.data.readers.cells import Cells
    from ckh.ops.grouped_conv.kernel import ConvKernel


NAME = "amd-csv"
PARQUET_NAME = "amd-parquet"
AMD_COLUMNS = ("kernel", "problem_idx", *CONV_COLUMNS, "latency_ms", "tflops", "non_zero")
COLUMNS = (*AMD_COLUMNS, "latency_us", "is_valid", "arch")

_DEPTH = ("Di", "Z", "stride_d", "pad_d", "dilation_d")
_DILATION = ("dilation_h", "dilation_w")
_NOT_NEEDED = frozenset({"problem_idx", *TIMES, "non_zero", *_DEPTH, *_DILATION})
_NOT_READ = frozenset({"problem_idx", "arch"})


def sniff(head: bytes) -> bool:
    """True if the first line has AMD's columns."""
    return {"kernel", "latency_ms", "N", "C", "K"} <= header_of(head)


def sniff_parquet(head: bytes) -> bool:
    """True for the columns of AMD's `convert_csv_to_parquet.py`; a dataset of ckh has `status`."""
    names = parquet_columns(head)
    return {"kernel_name", "latency_ms", "N", "C", "K", "block_size"} <= names and "status" not in names


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a CSV or Parquet file of AMD's benchmark."""
    return read_table(open_table(path), options)


def read_table(table: Table, options: ReadOptions) -> Reading:
    """Read a table with AMD's columns; `kernel_name` is accepted for `kernel`."""
    if not table.has("kernel") and table.has("kernel_name"):
        table = table.renamed({"kernel": "kernel_name"})
    required = [name for name in AMD_COLUMNS if name not in _NOT_NEEDED]
    for names in (_DEPTH, _DILATION):
        required += names if any(table.has(name) for name in names) else ()
    require_columns(table, required, TIMES)
    known = [name for name in COLUMNS if table.has(name)]
    arch = load_arch(table.arch(options.arch)).sized(options.num_cus or 0)
    many = [name for name in TIMES if name in known]
    few = [name for name in known if name not in {*many, *_NOT_READ}]
    rows = _GoodRows(arch, f"{table.file_name}:{table.sha256[:12]}", options)
    for cells in table.blocks(few, many):
        rows.add(cells)
    is_csv = table.file_name.lower().endswith(".csv")
    unknown = [own for name, own in table.columns.items() if name not in COLUMNS]
    before = [f"{table.where}: unknown columns are ignored: {', '.join(unknown)}"] if unknown and is_csv else []
    return rows.reading(table, NAME if is_csv else PARQUET_NAME, before)


class _GoodRows(TableRows):
    """The valid rows of a file, and counts of the others."""

    def __init__(self, arch: ArchSpec, run_id: str, options: ReadOptions) -> None:
        super().__init__(options)
        self._arch = arch
        self._run_id = run_id
        self._aliased: Counter[str] = Counter()

    def parsed(self, text: str) -> _Named:
        """Return the kernel of a name."""
        kernel, reason = parse_kernel_name(text), ""
        if kernel.pipeline not in self._arch.common.pipeline_lds:
            raise LeftOut(BAD_KERNEL, f"unknown pipeline {kernel.pipeline!r} in {text!r}")
        if not kernel.is_complete:
            ran = kernel.pipeline, ""
            pipeline, reason = _RAN_INSTEAD.get((self._arch.name, kernel.pipeline), ran)
            # AMD's older names omit a buffer that the pipeline requires.
            has_dsb = kernel.double_smem_buffer or pipeline in DOUBLE_SMEM_PIPELINES
            kernel = replace(kernel, pipeline=pipeline, double_smem_buffer=has_dsb)
        return _Named(kernel, kernel_name(kernel) if kernel.is_complete else amd_short_name(kernel), reason)

    def judged(self, cells: Cells, faults: Faults) -> pa.Table:
        """Validate rows, recording faults, and return the table of the valid ones."""
        named, kernel_of_row = self.kernels_of(cells, faults)
        table = _judged(cells, faults, named, kernel_of_row, self._arch, self._run_id)
        for kernel, count in zip(named, np.bincount(kernel_of_row[faults.good], minlength=len(named)), strict=False):
            if kernel.reason:
                self._aliased[kernel.reason] += int(count)
        if cells.has("tflops"):
            good = faults.good
            self.compare_tflops(cells.lines[good], cells.floats("tflops")[good], table.column("tflops").to_numpy())
        return table

    def notes(self) -> list[str]:
        """Warnings about kernels that differ from their names, and about TFLOPS that differ from the file's."""
        aliased = [f"{count} rows {reason}" for reason, count in (+self._aliased).items()]
        return aliased + self.differing_tflops()


_HEADER = ",".join(AMD_COLUMNS).encode()
AMD_CSV = FileKind("CSV file of AMD's columns", lambda path: head_of(path).split(b"\n", 1)[0].strip() == _HEADER)

_TIME = ("is_valid", "non_zero", "latency_ms")


def write_amd_csv(rows: MeasuredRows, path: Path) -> list[str]:
    """Write AMD's 24 columns and return warnings about data that they cannot represent.

    As in AMD's files, only rows with a time are written. Kernels have AMD's short names if these are distinct for all
    kernels of the rows, else their complete names. `non_zero` is 1 if outputs were not counted but the result was
    correct.
    """
    if len(archs := rows.distinct("arch")) > 1:
        raise DataError(
            f"the rows come from several architectures: {', '.join(archs)}",
            "convert the rows of one architecture",
            code="mixed-data",
        )
    names = dict.fromkeys(name for frame in _timed(rows, ()) for name in frame["kernel"].unique())
    if not names:
        raise DataError("no row has a time: nothing to write", code="not-measured")
    short = {name: amd_short_name(parse_kernel_name(name)) for name in names}
    is_clear = len(set(short.values())) == len(names)
    written = 0
    with open_output(path) as file:
        file.write(_HEADER + b"\r\n")
        for frame in _timed(rows, (*CONV_COLUMNS, "tflops")):
            kernel = frame["kernel"].map(short) if is_clear else frame["kernel"]
            out = frame.assign(kernel=kernel, non_zero=frame["non_zero"].fillna(1).astype("int64"))
            file.write(out[list(AMD_COLUMNS)].to_csv(index=False, header=False, lineterminator="\r\n").encode())
            written += len(out)
    omitted = len(rows) - written
    warnings = [f"rows without a time are not in {path}: {omitted}"] if omitted else []
    return (
        warnings if is_clear else [*warnings, "AMD's short names are not distinct for all kernels: names are complete"]
    )


def _timed(rows: MeasuredRows, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the rows with a time in blocks, with these columns, their kernels and the indices of their problems."""
    numbers = Numbering((*CONV_IDENTITY, "arch"))
    wanted = ["kernel", *_TIME, *names]
    for block in rows.blocks(list(dict.fromkeys([*wanted, *CONV_IDENTITY, "arch"]))):
        frame = plain(block.select(wanted)).to_pandas().assign(problem_idx=numbers.of(block))
        yield frame[frame["is_valid"] | ((frame["non_zero"] == 0) & (frame["latency_ms"] > 0))]


FORMATS = Formats(
    readers=(Reader(NAME, sniff, read), Reader(PARQUET_NAME, sniff_parquet, read)),
    mapped=MappedTable(COLUMNS, read_table),
    rows=(RowsFormat("csv", "AMD's 24 columns", AMD_CSV, write_amd_csv),),
)


BAD_PROBLEM = "with an impossible problem"
NOT_VALID = "marked as invalid in the file"
BAD_TIME = "with a time that is zero, negative or impossibly short"

# Values for a plain 2D convolution: columns that AMD's older files lack, and that may be empty.
_NOT_COUNTED = -1  # outputs were not counted
_PLAIN = {"Di": 1, "Z": 1, "stride_d": 1, "pad_d": 0, "dilation_d": 1, "dilation_h": 1, "dilation_w": 1}

# Kernels that differ from their short names: architecture, pipeline -> pipeline that ran, and the evidence.
_COMPV5 = (
    "of compv5 are read as repeated measurements of compv3: with the four waves and the one wave group of AMD's tiles "
    "compv5 computes nothing, and where AMD measured both, their times differ by 0.8 % in the median"
)
_RAN_INSTEAD = {("gfx950", "compv5"): ("compv3", _COMPV5)}


@dataclass(frozen=True, slots=True)
class _Named:
    """The kernel that a file's name denotes, its name in ckh, and why it differs from the file's name, if it does."""

    kernel: ConvKernel
    name: str
    reason: str


def _judged(
    cells: Cells,
    faults: Faults,
    named: list[_Named],
    kernel_of_row: NDArray[np.int64],
    arch: ArchSpec,
    run_id: str,
) -> pa.Table:
    """Validate every row, recording faults; return the table of the valid rows."""
    import pyarrow as pa

    kernels = [denoted.kernel for denoted in named]
    # Missing columns are as in a plain 2D convolution.
    sizes = {name: integers(cells, name, faults, _PLAIN.get(name)) for name in CONV_COLUMNS}
    if not cells.has("Di"):
        is_3d = np.array([kernel.ndim_spatial > 2 for kernel in kernels] or [False])  # noqa: PLR2004
        faults.mark(is_3d[kernel_of_row], BAD_PROBLEM, lambda _row: "a 3D kernel, but there is no column Di")
    timed = time_column(cells)
    times = numbers(cells, timed, faults, may_be_empty=False)
    if cells.has("tflops") and timed != "tflops":
        numbers(cells, "tflops", faults, may_be_empty=True)
    shortest = 0.0 if timed == "tflops" else SHORTEST_MS
    faults.mark((times < shortest) | (times == 0), BAD_TIME, lambda row: f"{timed} is {times[row]:g}")
    if cells.has("is_valid"):
        is_valid = cells.column("is_valid")
        faults.mark(~true_cells(is_valid), NOT_VALID, lambda row: f"is_valid is {is_valid.text(row)!r}")
    non_zero = integers(cells, "non_zero", faults, _NOT_COUNTED).values  # noqa: PD011 - not of pandas

    heads = [(kernel.variant, kernel.dtype, kernel.ndim_spatial, kernel.layout or "") for kernel in kernels]
    distinct = list(dict.fromkeys(heads))
    kind_of_row = np.array([distinct.index(head) for head in heads] or [0])[kernel_of_row]

    def make(head: tuple[Any, str, int, str], given: list[int]) -> ConvProblem:
        variant, dtype, ndim, layout = head
        fields: dict[str, Any] = dict(zip(CONV_COLUMNS.values(), given, strict=True))
        try:
            return ConvProblem(variant=variant, dtype=dtype, ndim=ndim, layout=layout, **fields)
        except UsageError as error:
            raise LeftOut(BAD_PROBLEM, error.message) from error

    problems, problem_of_row = distinct_problems(faults, distinct, kind_of_row, tuple(sizes.values()), make)
    good = np.flatnonzero(faults.good)
    flops = np.array([float(problem.flops) for problem in problems] or [0.0])[problem_of_row[good]]
    latency_ms = times_ms(timed, times[good], flops)
    counted, right = non_zero[good] != _NOT_COUNTED, non_zero[good] != 0
    extra: dict[str, Any] = {}
    if cells.has("non_zero"):
        extra["non_zero"] = pa.array(non_zero[good], mask=~counted)
    texts = pa.array([None, "all outputs are zero"])
    extra["message"] = texts.take(pa.array((~right).astype("int8")))
    names = [denoted.name for denoted in named]
    return build_table(
        Pairs(problems, problem_of_row[good], kernels, names, kernel_of_row[good], GROUPED_CONV.op_type),
        Results(status_of(right, Status.WRONG_RESULT), latency_ms, extra),
        Origin(arch.name, None, arch.hardware.to_dict(), run_id),
    )
