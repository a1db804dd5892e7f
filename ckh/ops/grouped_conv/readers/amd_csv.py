"""Reader and writer of AMD's tables of grouped convolutions: the benchmark's CSV, and Parquet that is made from it.

CSV files have 24 columns, or the older 17 of 2D without depth and dilations, which are then 1. `problem_idx` is
ignored: problems are distinguished by all of their sizes. The columns that `convert_csv_to_parquet.py` adds (tiles with
its own names, a hardware profile that is a table in the script) follow from the name and the architecture, and are
ignored.
Rows of one problem and kernel are repeated measurements (`Reading.repeats`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.data.formats import Formats, MappedTable, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.numbering import Numbering
from ckh.data.readers.cells import TIMES, WITHOUT_TIME, Cells, Faults, with_times
from ckh.data.readers.named_table import Table, open_table, require_columns
from ckh.data.readers.reader import BadRow, parquet_columns, refuse_bad
from ckh.data.spool import Buckets, StoredRows
from ckh.data.tables import BLOCK_ROWS, plain
from ckh.errors import DataError
from ckh.files.outputs import FileKind, head_of, open_output
from ckh.ops.grouped_conv.columns import CONV_IDENTITY
from ckh.ops.grouped_conv.kernels.names import amd_short_name, parse_kernel_name
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.ops.grouped_conv.readers.amd_rows import KernelNames, judged_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.data.formats import MeasuredRows


NAME = "amd-csv"
PARQUET_NAME = "amd-parquet"
AMD_COLUMNS = ("kernel", "problem_idx", *CONV_COLUMNS, "latency_ms", "tflops", "non_zero")
COLUMNS = (*AMD_COLUMNS, "latency_us", "is_valid", "arch")

_DEPTH = ("Di", "Z", "stride_d", "pad_d", "dilation_d")
_DILATION = ("dilation_h", "dilation_w")
_NOT_NEEDED = frozenset({"problem_idx", *TIMES, "non_zero", *_DEPTH, *_DILATION})
_NOT_READ = frozenset({"problem_idx", "arch"})
_TFLOPS_TOLERANCE = 0.01
_NAMED = 3


def sniff(head: bytes) -> bool:
    """True if the first line has AMD's columns."""
    names = {name.strip().strip('"') for name in head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").split(",")}
    return {"kernel", "latency_ms", "N", "C", "K"} <= names


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
    known = _known_columns(table)
    arch = load_arch(table.arch(options.arch)).sized(options.num_cus or 0)
    many = [name for name in TIMES if name in known]
    few = [name for name in known if name not in {*many, *_NOT_READ}]
    rows = _GoodRows(arch, f"{table.file_name}:{table.sha256[:12]}", options)
    for cells in table.blocks(few, many):
        rows.add(cells)
    if not rows.seen:
        raise DataError(f"{table.where} has a header but no rows", code="empty")
    if rows.bad and not options.skip_bad:
        refuse_bad(table.where, rows.bad, sorted(rows.first, key=lambda bad_row: bad_row.line))
    if not len(rows.good):
        raise DataError(f"{table.where}: no row with a time", code="no-good-row")
    is_csv = table.file_name.lower().endswith(".csv")
    source = {"name": table.file_name, "format": NAME if is_csv else PARQUET_NAME, "sha256": table.sha256}
    others = [own for name, own in table.columns.items() if name not in COLUMNS]
    warnings = [f"{table.where}: unknown columns are ignored: {', '.join(others)}"] if others and is_csv else []
    warnings += [*table.warnings, *rows.notes(table.where)]
    return Reading(rows.good, (source,), bad=dict(rows.bad + rows.left_out), warnings=tuple(warnings), repeats=True)


class _GoodRows:
    """The valid rows of a file, and counts of the others; data that grow with the rows are on disk."""

    def __init__(self, arch: ArchSpec, run_id: str, options: ReadOptions) -> None:
        import numpy as np

        self.seen = 0
        self.bad: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.first: list[BadRow] = []
        self.good = StoredRows(options.output)
        self._names = KernelNames(arch)
        self._run_id = run_id
        self._aliased: Counter[str] = Counter()
        self._differing = Buckets(
            np.dtype([("row", "i8"), ("line", "i8"), ("theirs", "f8"), ("ours", "f8")]), options.output
        )

    def add(self, cells: Cells) -> None:
        """Validate and add rows."""
        import numpy as np

        cells, missing = with_times(cells)
        self.left_out += Counter({WITHOUT_TIME: missing})
        faults = Faults(cells)
        table, aliased = judged_rows(cells, faults, self._names, self._run_id)
        self._aliased.update(aliased)
        self.seen += len(cells) + len(cells.wrong) + missing
        self.bad.update(faults.counts())
        self.first = sorted([*self.first, *faults.first()], key=lambda bad_row: bad_row.line)[:_NAMED]
        rows = np.arange(self.good.added, self.good.added + len(table))
        lines = cells.lines[faults.good]
        if cells.has("tflops"):
            theirs, ours = cells.floats("tflops")[faults.good], table.column("tflops").to_numpy()
            differ = np.abs(theirs - ours) > _TFLOPS_TOLERANCE * ours
            result = [values[differ] for values in (rows, lines, theirs, ours)]
            self._differing.add(_records(self._differing.kind, *result), rows[differ] // BLOCK_ROWS)
        if len(table):
            self.good.add(table)

    def notes(self, where: str) -> list[str]:
        """Warnings about kernels that differ from their names, and about TFLOPS that differ from the file's."""
        result = [f"{where}: {count} rows {words}" for words, count in self._aliased.items()]
        return result + self._differing_tflops(where)

    def _differing_tflops(self, where: str) -> list[str]:
        count, example = 0, ""
        for records in self._differing:
            number = int(records["row"][0]) // BLOCK_ROWS
            kept = self.good.kept(number * BLOCK_ROWS, BLOCK_ROWS)[records["row"] - number * BLOCK_ROWS]
            for _, line, theirs, ours in records[kept][: 1 - min(count, 1)].tolist():
                example = f"line {line}: {theirs:g} instead of {ours:g}"
            count += int(kept.sum())
        text = f"differ by more than 1 % from flops / time in {count} rows, e.g. {example}; flops / time is kept"
        return [f"{where}: tflops {text}"] if count else []


def _records(kind: np.dtype[Any], *columns: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    records = np.empty(len(columns[0]), dtype=kind)
    for name, values in zip(kind.names or (), columns, strict=True):
        records[name] = values
    return records


def _known_columns(table: Table) -> list[str]:
    """Return AMD's columns that the table has."""
    required = [name for name in AMD_COLUMNS if name not in _NOT_NEEDED]
    for names in (_DEPTH, _DILATION):
        required += names if any(table.has(name) for name in names) else ()
    require_columns(table, required, TIMES)
    return [name for name in COLUMNS if table.has(name)]


AMD_CSV = FileKind("CSV file of AMD's columns", lambda path: _is_headed(head_of(path)))

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
        file.write((",".join(AMD_COLUMNS) + "\r\n").encode())
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


def _is_headed(head: bytes) -> bool:
    return head.split(b"\n", 1)[0].strip() == ",".join(AMD_COLUMNS).encode()


FORMATS = Formats(
    readers=(Reader(NAME, sniff, read), Reader(PARQUET_NAME, sniff_parquet, read)),
    mapped=MappedTable(COLUMNS, read_table),
    rows=(RowsFormat("csv", "AMD's 24 columns", AMD_CSV, write_amd_csv),),
)
