"""Conversion of AITER's tuned GEMM tables (`a8w8_*_tuned_gemm.csv`) to problem files with their winners.

The computation differs from `gemm_universal`: inputs are scaled, by row or by block, and results are bf16. Datasets of
such tables belong to `aiter_gemm`.

A is M x K and B is N x K, both row-major, which is layout rcr. The element type is `q_dtype_w`; block-scaled tables
have no such column and are fp8. Of duplicate shapes on a device, the faster row is kept.

A file of winners has the columns of a problem file, so that it can be used as one, and further columns on the winner.
It is not a dataset: slower kernels are unknown, so that no ranking can be learned.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import arch_names
from ckh.data.formats import ReadOptions, WinnerSummary
from ckh.data.readers.cells import WRONG_CELLS, read_header
from ckh.data.readers.reader import BadRows, MissingTime, read_bytes, source_of, stated_time
from ckh.errors import DataError, UsageError
from ckh.files.outputs import FileKind, head_of, write_output
from ckh.files.untrusted import as_text, csv_rows, integer
from ckh.ops.gemm_universal.readers.gemm_rows import problem_of
from ckh.ops.table_rows import Unusable
from ckh.problems import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.ops.gemm_universal.problem import GemmProblem


_US_FLOPS_PER_TFLOPS = 1e6
_HEAD = b"m,n,k,dtype,layout,arch,num_cus,library,kernel_name,tuned_split,"

WINNERS = FileKind("file of winners", lambda path: head_of(path).startswith(_HEAD))


@dataclass(frozen=True, slots=True)
class Winner:
    """A winner.

    `tuned_split` is splitK of the tuning, a parameter of the winner and not of the problem; its meaning depends on the
    library (exponent of a power of two for Composable Kernel, a count for others). `latency_us` is in microseconds.
    """

    problem: GemmProblem
    arch: str
    num_cus: int
    library: str
    kernel_name: str
    tuned_split: int
    latency_us: float
    source: str

    @property
    def tflops(self) -> float:
        """Operations / latency."""
        return self.problem.flops / self.latency_us / _US_FLOPS_PER_TFLOPS

    def columns(self) -> dict[str, Any]:
        """Return the row of a file of winners."""
        problem = self.problem
        return {
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "dtype": problem.dtype,
            "layout": problem.layout,
            "arch": self.arch,
            "num_cus": self.num_cus,
            "library": self.library,
            "kernel_name": self.kernel_name,
            "tuned_split": self.tuned_split,
            "latency_us": self.latency_us,
            "tflops": self.tflops,
            "source": self.source,
        }


def require_csv_name(path: Path) -> None:
    """Require a name by which a problem file is recognised."""
    if path.suffix.lower() != ".csv":
        raise UsageError(
            f"{path} does not end in .csv", "the name decides how a file of problems is read", code="unknown-format"
        )


def write_winners(winners: Sequence[Winner], path: Path | str) -> None:
    """Write a CSV file of winners that is also a problem file, atomically."""
    path = Path(path)
    require_csv_name(path)
    if not winners:
        raise DataError("no winners to write", code="empty")
    text = io.StringIO(newline="")
    rows = [winner.columns() for winner in winners]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_output(path, text.getvalue().encode())


NAME = "aiter-csv"
BAD_TIME = "with a time that is not a positive number"
BAD_NUMBER = "with a cell that is not an integer"
NO_KERNEL = "without a kernel"
BAD_DTYPE = "with an element type that is missing or unknown"
BAD_ARCH = "with an architecture that is missing or unknown"
OTHER_ARCH = "of another architecture than --arch"

_REQUIRED = ("cu_num", "M", "N", "K", "us", "kernelName")
_LAYOUT = "rcr"
_DTYPES = ("int8", "fp8", "bf16", "fp16")
_BLOCK_SCALED = ("a8w8_blockscale", "fp8")
# Tables without the column gfx. 256 compute units are gfx950's and gfx1250's.
_ARCH_OF_CUS = {80: "gfx942", 304: "gfx942"}
_TFLOPS_TOLERANCE = 0.01
_ROUNDING = 0.005
_BATCHED = "B"


@dataclass(frozen=True, slots=True, eq=False)
class Winners:
    """The winners of one table in order; number of skipped rows by reason, and of slower duplicates."""

    winners: tuple[Winner, ...]
    source: dict[str, Any]
    bad: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    warnings: tuple[str, ...] = ()


def read_winners(path: Path, options: ReadOptions) -> Winners:
    """Read a tuned table."""
    content = read_bytes(path)
    names = read_header(path, content)
    for name in _REQUIRED:
        if name not in names:
            raise DataError(
                f"{path}: column {name} is missing", "expected " + ", ".join(_REQUIRED), code="missing-column"
            )
    if _BATCHED in names:
        raise DataError(f"{path} has batched GEMMs, which are not supported", code="unsupported")
    best: dict[tuple[Any, ...], Winner] = {}
    bad = BadRows()
    differing: list[int] = []
    repeated = 0
    for line, cells in _rows(path, content):
        try:
            row = _cells_by_name(names, cells)
            winner = _winner(row, options, path.name)
        except MissingTime:
            bad.without_time.append(line)
            continue
        except Unusable as why:
            bad.add(why.reason, line, why.detail)
            continue
        if _differs(row, winner):
            differing.append(line)
        key = (winner.problem, winner.arch, winner.num_cus)
        repeated += key in best
        best[key] = min(best.get(key, winner), winner, key=lambda timed: timed.latency_us)
    if not options.skip_bad:
        bad.refuse(path)
    if not best:
        raise DataError(
            f"{path}: no valid row" if bad.left_out() else f"{path} has a header but no rows", code="no-good-row"
        )
    return Winners(
        tuple(best.values()),
        source_of(path, content, NAME),
        bad.left_out(),
        repeated,
        tuple(_warnings(path, differing)),
    )


def write_problems(inputs: Sequence[Path], out: Path, options: ReadOptions) -> WinnerSummary:
    """Write the winners of tuned tables as one problem file, atomically."""
    require_csv_name(out)
    tables = [read_winners(path, options) for path in inputs]
    winners = [winner for table in tables for winner in table.winners]
    write_winners(winners, out)
    dropped: Counter[str] = Counter()
    for table in tables:
        dropped.update(table.bad)
    return WinnerSummary(
        winners=len(winners),
        problems=len({winner.problem for winner in winners}),
        archs=tuple(sorted({winner.arch for winner in winners})),
        dropped=dict(dropped),
        repeated=sum(table.repeated for table in tables),
        warnings=tuple(warning for table in tables for warning in table.warnings),
    )


def _rows(path: Path, content: bytes) -> Iterator[tuple[int, list[str]]]:
    rows = csv_rows(path, as_text(path, content), fills=True)
    next(rows)
    return ((line, cells) for line, cells in rows if any(cells))


def _cells_by_name(names: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(names):
        raise Unusable(WRONG_CELLS, f"{len(cells)} cells instead of {len(names)}")
    return dict(zip(names, cells, strict=True))


def _winner(row: dict[str, str], options: ReadOptions, source: str) -> Winner:
    sizes = {name.lower(): _integer(row, name) for name in "MNK"}
    num_cus = _integer(row, "cu_num")
    if num_cus < 1:
        raise Unusable(BAD_NUMBER, f"cu_num is {num_cus}")
    if not row["kernelName"]:
        raise Unusable(NO_KERNEL, "kernelName is empty")
    latency_us = _time(row)
    return Winner(
        problem=problem_of(sizes, dtype=_dtype(row), layout=_LAYOUT),
        arch=_arch(row, num_cus, options),
        num_cus=num_cus,
        library=row.get("libtype", ""),
        kernel_name=row["kernelName"],
        tuned_split=_integer(row, "splitK") if "splitK" in row else 0,
        latency_us=latency_us,
        source=source,
    )


def _time(row: dict[str, str]) -> float:
    try:
        return stated_time(row["us"])
    except ValueError:
        raise Unusable(BAD_TIME, f"us is {row['us']!r}") from None


def _dtype(row: dict[str, str]) -> str:
    prefix, dtype = _BLOCK_SCALED
    if "q_dtype_w" not in row and row["kernelName"].startswith(prefix):
        return dtype
    text = row.get("q_dtype_w", "")
    if (name := dtype_name(text)) not in _DTYPES:
        raise Unusable(BAD_DTYPE, f"q_dtype_w is {text!r}" if "q_dtype_w" in row else "there is no column q_dtype_w")
    return name


def _arch(row: dict[str, str], num_cus: int, options: ReadOptions) -> str:
    arch = row["gfx"].split(":", 1)[0] if "gfx" in row else options.arch or _ARCH_OF_CUS.get(num_cus, "")
    if options.arch is not None and arch != options.arch.split(":", 1)[0]:
        raise Unusable(OTHER_ARCH, f"gfx is {arch}")
    if arch not in arch_names():
        detail = (
            f"gfx is {row['gfx']!r}" if "gfx" in row else f"{num_cus} compute units do not determine it, --arch would"
        )
        raise Unusable(BAD_ARCH, detail)
    return arch


def _differs(row: dict[str, str], winner: Winner) -> bool:
    """True if the table's own TFLOPS differ from flops / time."""
    if "tflops" not in row:
        return False
    return not abs(_float(row["tflops"]) - winner.tflops) <= _TFLOPS_TOLERANCE * winner.tflops + _ROUNDING


def _warnings(path: Path, differing: list[int]) -> Iterator[str]:
    if differing:
        count = f"differ by more than 1 % from flops / time in {len(differing)} rows"
        yield f"{path}: tflops {count}, e.g. line {differing[0]}; flops / time is kept"


def _integer(row: dict[str, str], name: str) -> int:
    try:
        return integer(row[name])
    except ValueError:
        raise Unusable(BAD_NUMBER, f"{name} is {row[name]!r}") from None


def _float(text: str) -> float:
    """Parse the number in a cell, NaN if it is not a number."""
    try:
        return float(text.replace("_", "no number"))
    except ValueError:
        return math.nan
