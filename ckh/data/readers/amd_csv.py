"""Reader of the CSV files of AMD's grouped-convolution benchmark: 24 columns, or the older 17 of 2D.

`problem_idx` is never used: problems are told apart by all of their sizes. The 17 columns lack depth and dilations,
which are then 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.data.amd_export import AMD_COLUMNS
from ckh.data.readers._amd_rows import judged_rows
from ckh.data.readers._base import Reading, ReadOptions, read_bytes, refuse_bad, source_of
from ckh.data.readers._cells import Cells, Faults, read_cells, read_header
from ckh.errors import DataError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

NAME = "amd-csv"


_DEPTH = ("Di", "Z", "stride_d", "pad_d", "dilation_d")
_DILATION = ("dilation_h", "dilation_w")
_NOT_NEEDED = frozenset({"problem_idx", "tflops", "non_zero", *_DEPTH, *_DILATION})
_TFLOPS_TOLERANCE = 0.01


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
    content = read_bytes(path)
    known, warnings = _known_columns(path, read_header(path, content))
    many = [name for name in ("latency_ms", "tflops") if name in known]
    cells = read_cells(path, content, [name for name in known if name not in {*many, "problem_idx"}], many)
    if not len(cells) and not cells.wrong:
        raise DataError(f"{path} has a header but no rows")
    if not content.endswith(b"\n"):
        warnings.append(f"{path}: the last line has no end, the file may be cut off")

    faults = Faults(cells)
    source = source_of(path, content, NAME)
    table = judged_rows(cells, faults, arch, f"{path.name}:{source['sha256'][:12]}")
    counts = faults.counts()
    if counts and not options.skip_bad:
        refuse_bad(path, counts, faults.first())
    if not table.num_rows:
        raise DataError(f"{path}: not one good row")
    if "tflops" in known:
        warnings.extend(_compare_tflops(path, cells, faults.good, table))
    return Reading(table, (source,), bad=counts, warnings=tuple(warnings))


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


def _compare_tflops(path: Path, cells: Cells, good: NDArray[np.bool_], table: pa.Table) -> list[str]:
    import numpy as np

    theirs = cells.floats("tflops")[good]
    ours = table.column("tflops").to_numpy()
    differ = np.flatnonzero(np.abs(theirs - ours) > _TFLOPS_TOLERANCE * ours)
    if not len(differ):
        return []
    first = differ[0]
    example = f"line {cells.lines[good][first]}: {theirs[first]:g} instead of {ours[first]:g}"
    count = f"differ by more than 1 % from flops / time in {len(differ)} rows"
    return [f"{path}: tflops {count}, e.g. {example}; flops / time is kept"]
