"""Reader of the CSV files of AMD's grouped-convolution benchmark: 24 columns, or the older 17 of 2D.

`problem_idx` is never used: problems are told apart by all of their sizes. The 17 columns lack depth and dilations,
which are then 1.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.data.readers.base import BadRow, refuse_bad
from ckh.data.readers.cells import Cells, Faults, read_cells, read_header
from ckh.data.tables import concat
from ckh.errors import DataError, UsageError
from ckh.formats import Reading, ReadOptions
from ckh.ops.grouped_conv.amd_export import AMD_COLUMNS
from ckh.ops.grouped_conv.amd_rows import DUPLICATE, Seen, judged_rows

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    import numpy as np
    import pyarrow as pa
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
    """Whether the first line names AMD's columns."""
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
    file.seek(0)
    rows = _GoodRows(arch, f"{path.name}:{sha256[:12]}")
    for cells in read_cells(path, file, names, few, many):
        rows.add(cells)
    if not rows.seen:
        raise DataError(f"{path} has a header but no rows")
    if end != b"\n":
        warnings.append(f"{path}: the last line has no end, the file may be cut off")
    rows.drop_repeated()
    if rows.bad and not options.skip_bad:
        refuse_bad(path, rows.bad, sorted(rows.first, key=lambda one: one.line))
    table = rows.table()
    if table is None:
        raise DataError(f"{path}: not one good row")
    source = {"name": path.name, "format": NAME, "sha256": sha256}
    return Reading(table, (source,), bad=dict(rows.bad), warnings=(*warnings, *rows.differing(path)))


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
    """The good rows of a file, compact, and what became of the others."""

    def __init__(self, arch: ArchSpec, run_id: str) -> None:
        self.seen = 0
        self.bad: Counter[str] = Counter()
        self.first: list[BadRow] = []
        self._arch = arch
        self._run_id = run_id
        self._numbers = Seen()
        self._tables: list[pa.Table] = []
        self._pairs: list[NDArray[np.int64]] = []
        self._lines: list[NDArray[np.int64]] = []
        self._differing: list[NDArray[np.float64]] = []

    def add(self, cells: Cells) -> None:
        """Judge some rows."""
        import numpy as np

        faults = Faults(cells)
        table, pairs = judged_rows(cells, faults, self._arch, self._run_id, self._numbers)
        self.seen += len(cells) + len(cells.wrong)
        self.bad.update(faults.counts())
        self.first += faults.first()
        lines = cells.lines[faults.good]
        if cells.has("tflops"):
            theirs, ours = cells.floats("tflops")[faults.good], table.column("tflops").to_numpy()
            differ = np.abs(theirs - ours) > _TFLOPS_TOLERANCE * ours
            self._differing.append(np.stack([lines, theirs, ours])[:, differ])
        self._tables.append(table)
        self._pairs.append(pairs)
        self._lines.append(lines.astype(np.uint32))

    def drop_repeated(self) -> None:
        """Leave out rows that repeat the pair of an earlier one."""
        import numpy as np
        import pandas as pd

        pairs = np.concatenate(self._pairs)
        ordered = np.sort(pairs)
        if not (ordered[1:] == ordered[:-1]).any():
            return
        repeated = pd.Series(pairs).duplicated().to_numpy()
        lines = np.concatenate(self._lines)[repeated]
        self.bad[DUPLICATE] = len(lines)
        for line, pair in zip(lines[:_NAMED].tolist(), pairs[repeated][:_NAMED].tolist(), strict=True):
            detail = f"again {self._numbers.kernel(pair)} on the same problem"
            self.first.append(BadRow(DUPLICATE, line, detail))
        starts = np.cumsum([0, *map(len, self._pairs)])
        self._tables = [
            table.filter(~repeated[start : start + len(table)])
            for table, start in zip(self._tables, starts.tolist(), strict=False)
        ]
        self._differing = [part[:, ~np.isin(part[0], lines)] for part in self._differing]

    def table(self) -> pa.Table | None:
        """The good rows, if there are any."""
        found = [table for table in self._tables if len(table)]
        return concat(found) if found else None

    def differing(self, path: Path) -> list[str]:
        """A warning of TFLOPS that the file says otherwise."""
        import numpy as np

        found = np.concatenate(self._differing, axis=1) if self._differing else np.zeros((3, 0))
        if not found.size:
            return []
        line, theirs, ours = found[:, 0]
        count = f"differ by more than 1 % from flops / time in {found.shape[1]} rows"
        example = f"line {line:.0f}: {theirs:g} instead of {ours:g}"
        return [f"{path}: tflops {count}, e.g. {example}; flops / time is kept"]


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
