"""Reader of the CSV files of AMD's grouped-convolution benchmark: 24 columns, or the older 17 of 2D.

`problem_idx` is never used: problems are distinguished by all of their sizes. The 17 columns lack depth and dilations,
which are then 1. Rows of one problem and kernel are repeated measurements (`Reading.repeats`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.data.ahead import ahead
from ckh.data.formats import Reading, ReadOptions
from ckh.data.readers.base import BadRow, refuse_bad
from ckh.data.readers.cells import Cells, Faults, read_cells, read_header
from ckh.data.spool import Buckets, StoredRows
from ckh.data.tables import BLOCK_ROWS
from ckh.errors import DataError, UsageError
from ckh.ops.grouped_conv.amd_export import AMD_COLUMNS
from ckh.ops.grouped_conv.amd_rows import KernelNames, judged_rows

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    import numpy as np
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec

NAME = "amd-csv"


_DEPTH = ("Di", "Z", "stride_d", "pad_d", "dilation_d")
_DILATION = ("dilation_h", "dilation_w")
_NOT_NEEDED = frozenset({"problem_idx", "tflops", "non_zero", *_DEPTH, *_DILATION})
_TFLOPS_TOLERANCE = 0.01
_CHUNK_BYTES = 1 << 20
_MOST_HEADER_BYTES = 1 << 16
_NAMED = 3


def sniff(head: bytes) -> bool:
    """True if the first line names AMD's columns."""
    names = {name.strip().strip('"') for name in head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").split(",")}
    return {"kernel", "latency_ms", "N", "C", "K"} <= names


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a CSV file of AMD's benchmark.

    Raises:
        UsageError: no architecture, or an unknown one, was given.
        DataError: columns are missing, or rows are bad and not to be skipped.
    """
    if options.arch is None:
        raise UsageError(f"{path} does not say what it was measured on", "give it with --arch, e.g. --arch gfx942")
    arch = load_arch(options.arch)
    try:
        with path.open("rb") as file:
            return _read(path, file, arch, options)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _read(path: Path, file: BinaryIO, arch: ArchSpec, options: ReadOptions) -> Reading:
    sha256, end = _look_through(path, file)
    names = read_header(path, file.readline(_MOST_HEADER_BYTES))
    known, warnings = _known_columns(path, names)
    many = [name for name in ("latency_ms", "tflops") if name in known]
    few = [name for name in known if name not in {*many, "problem_idx"}]
    rows = _GoodRows(arch, f"{path.name}:{sha256[:12]}", options.output)
    for cells in ahead(read_cells(path, file, names, few, many)):
        rows.add(cells)
    if not rows.seen:
        raise DataError(f"{path} has a header but no rows")
    if end != b"\n":
        warnings.append(f"{path}: the last line has no end, the file may be cut off")
    if rows.bad and not options.skip_bad:
        refuse_bad(path, rows.bad, sorted(rows.first, key=lambda one: one.line))
    if not len(rows.good):
        raise DataError(f"{path}: not one good row")
    source = {"name": path.name, "format": NAME, "sha256": sha256}
    return Reading(rows.good, (source,), bad=dict(rows.bad), warnings=(*warnings, *rows.notes(path)), repeats=True)


def _look_through(path: Path, file: BinaryIO) -> tuple[str, bytes]:
    """The digest of a file that is read from its begin, and its last byte; it is then at its begin."""
    digest, last, is_empty = hashlib.sha256(), b"", True
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        last, is_empty = chunk[-1:], is_empty and chunk.isspace()
    if is_empty:
        raise DataError(f"{path} is empty")
    file.seek(0)
    return digest.hexdigest(), last


class _GoodRows:
    """The good rows of a file and what became of the others; what grows with rows is on disk."""

    def __init__(self, arch: ArchSpec, run_id: str, output: Path | None) -> None:
        import numpy as np

        self.seen = 0
        self.bad: Counter[str] = Counter()
        self.first: list[BadRow] = []
        self.good = StoredRows(output)
        self._names = KernelNames(arch)
        self._run_id = run_id
        self._aliased: Counter[str] = Counter()
        self._differing = Buckets(np.dtype([("row", "i8"), ("line", "i8"), ("theirs", "f8"), ("ours", "f8")]), output)

    def add(self, cells: Cells) -> None:
        """Judge some rows."""
        import numpy as np

        faults = Faults(cells)
        table, aliased = judged_rows(cells, faults, self._names, self._run_id)
        self._aliased.update(aliased)
        self.seen += len(cells) + len(cells.wrong)
        self.bad.update(faults.counts())
        self.first = sorted([*self.first, *faults.first()], key=lambda one: one.line)[:_NAMED]
        rows = np.arange(self.good.added, self.good.added + len(table))
        lines = cells.lines[faults.good]
        if cells.has("tflops"):
            theirs, ours = cells.floats("tflops")[faults.good], table.column("tflops").to_numpy()
            differ = np.abs(theirs - ours) > _TFLOPS_TOLERANCE * ours
            found = [values[differ] for values in (rows, lines, theirs, ours)]
            self._differing.add(_records(self._differing.kind, *found), rows[differ] // BLOCK_ROWS)
        if len(table):
            self.good.add(table)

    def notes(self, path: Path) -> list[str]:
        """Warnings of kernels that were others than their names say, and of TFLOPS that the file says otherwise."""
        return [f"{path}: {count} rows {words}" for words, count in self._aliased.items()] + self._differing_tflops(
            path
        )

    def _differing_tflops(self, path: Path) -> list[str]:
        count, example = 0, ""
        for records in self._differing:
            number = int(records["row"][0]) // BLOCK_ROWS
            kept = self.good.kept(number * BLOCK_ROWS, BLOCK_ROWS)[records["row"] - number * BLOCK_ROWS]
            for _, line, theirs, ours in records[kept][: 1 - min(count, 1)].tolist():
                example = f"line {line}: {theirs:g} instead of {ours:g}"
            count += int(kept.sum())
        text = f"differ by more than 1 % from flops / time in {count} rows, e.g. {example}; flops / time is kept"
        return [f"{path}: tflops {text}"] if count else []


def _records(kind: np.dtype[Any], *columns: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    records = np.empty(len(columns[0]), dtype=kind)
    for name, values in zip(kind.names or (), columns, strict=True):
        records[name] = values
    return records


def _known_columns(path: Path, header: list[str]) -> tuple[list[str], list[str]]:
    """AMD's columns that the file has, and warnings about others."""
    missing = [name for name in AMD_COLUMNS if name not in header and name not in _NOT_NEEDED]
    for names in (_DEPTH, _DILATION):
        absent = [name for name in names if name not in header]
        missing += absent if len(absent) < len(names) else []
    if missing:
        raise DataError(f"{path}: column {missing[0]} is missing", "expected " + ", ".join(AMD_COLUMNS))
    others = [name for name in header if name not in AMD_COLUMNS]
    warnings = [f"{path}: unknown columns are ignored: {', '.join(others)}"] if others else []
    return [name for name in AMD_COLUMNS if name in header], warnings
