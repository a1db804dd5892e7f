"""`Winner`: the fastest kernel for a GEMM according to a third-party tuning, and files of winners.

A file of winners has the columns of a problem file, so that it can be used as one, and further columns on the winner.
It is not a dataset: slower kernels are unknown, so that no ranking can be learned.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.outputs import FileKind, head_of, write_output

if TYPE_CHECKING:
    from collections.abc import Sequence

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
