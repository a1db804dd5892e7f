"""Format of AITER's tuned tables: columns, cells, and the row that AITER looks up for a shape.

Measured rows have AITER's columns. Predicted rows have an additional column, `predicted`, and are written to separate
tables: their `us` is not a measured time but an upper bound, so that no predicted row displaces a measured row when
AITER merges tables (it keeps the row with the smallest `us`).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ckh.archs import load_arch
from ckh.errors import DataError
from ckh.files.outputs import FileKind, head_of, write_output
from ckh.ops.aiter_gemm.kernel import parse_kernel
from ckh.ops.aiter_gemm.kernels.installed import InstalledKernel
from ckh.ops.aiter_gemm.kernels.pool import kernel_numbers, known_names
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.data.formats import MeasuredRows
    from ckh.ops.aiter_gemm.problem import AiterGemm
    from ckh.ops.base import Operation, Problem

PREDICTED = "predicted"  # the column
NO_ID = -1  # of CK Tile's kernels, if a dataset is written without an AITER that numbers them

# Further columns of each family's tables.
_STATED = {
    "a8w8": ("q_dtype_w",),
    "a8w8_bpreshuffle": ("q_dtype_w", "libtype"),
    "a8w8_blockscale": ("libtype",),
    "a8w8_blockscale_bpreshuffle": ("libtype",),
    "a4w4_blockscale": (),
}
_KEY = ("gfx", "cu_num", "M", "N", "K")
KEY = (*_KEY, "q_dtype_w")  # of a shape, in tables that have the column
# Environment variable that names the table of a family.
VARIABLES = {
    "a8w8": "AITER_CONFIG_GEMM_A8W8",
    "a8w8_bpreshuffle": "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE",
    "a8w8_blockscale": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE",
    "a8w8_blockscale_bpreshuffle": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE",
    "a4w4_blockscale": "AITER_CONFIG_GEMM_A4W4",
}
_CHOICE = ("kernelId", "splitK", "us", "kernelName", "tflops", "bw", "errRatio")
_US_FLOPS_PER_TFLOPS, _US_BYTES_PER_GB_S = 1e6, 1e3
# M up to a limit is padded to a multiple; above all limits to powers of two.
_FINE_STEPS = ((256, 16), (1024, 32), (4096, 64))
_FINEST_ABOVE = 128
_MOST_M, _WIDE_N = 8192, 4096

TUNED = FileKind("tuned table of AITER", lambda path: head_of(path).split(b",", 1)[0] in (b"gfx", b"cu_num"))


class TableRow(Protocol):
    """A row of any of AITER's tuned tables."""

    @property
    def arch(self) -> str:
        """The architecture."""

    @property
    def kernel(self) -> str:
        """Complete name of the kernel, or of both."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The values by which AITER looks the row up."""

    @property
    def time_us(self) -> float:
        """The measured time, or if predicted an upper bound."""

    @property
    def is_predicted(self) -> bool:
        """True if it was not measured."""

    def cells(self) -> dict[str, Any]:
        """The row by column."""


_Row = TypeVar("_Row", bound=TableRow)


@dataclass(frozen=True, slots=True)
class TunedLine:
    """A row of a tuned table.

    Attributes:
        arch: the architecture.
        problem: the shape, with the device's compute units.
        kernel: the complete name, with the split of K.
        time_us: the measured time, or if predicted an upper bound.
        is_predicted: whether it was predicted and not measured.
        built_as: name and number of the kernel in the AITER that builds it; None: as in `NUMBERED_BY`.
    """

    arch: str
    problem: AiterGemm
    kernel: str
    time_us: float
    is_predicted: bool
    built_as: InstalledKernel | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The values by which AITER looks a row up, and the family, which selects the table."""
        problem = self.problem
        return self.arch, problem.num_cus, problem.m, problem.n, problem.k, problem.dtype, problem.family

    def cells(self) -> dict[str, Any]:
        """The row by column."""
        problem, kernel = self.problem, parse_kernel(self.kernel)
        built = self.built_as or InstalledKernel(kernel.base, kernel_numbers().get(kernel.base, NO_ID))
        return {
            **key_cells(self.arch, problem),
            "libtype": problem.library,
            "kernelId": built.number,
            "splitK": kernel.split_k,
            "us": f"{self.time_us:.10g}",
            "kernelName": built.name,
            **rates(problem, None if self.is_predicted else self.time_us),
            "errRatio": "",
            PREDICTED: 1,
        }


def rates(problem: Problem, time_us: float | None) -> dict[str, str]:
    """Return the cells of TFLOPS and GB/s of a measured time; empty without one."""
    if time_us is None:
        return {"tflops": "", "bw": ""}
    tflops, bandwidth = problem.flops / time_us / _US_FLOPS_PER_TFLOPS, problem.bytes / time_us / _US_BYTES_PER_GB_S
    return {"tflops": f"{tflops:.2f}", "bw": f"{bandwidth:.2f}"}


def torch_dtype(dtype: str, arch: str) -> str:
    """Return PyTorch's name of the element type on an architecture; 8-bit floats differ between generations."""
    if dtype == "fp8":
        return "torch.float8_e4m3fnuz" if load_arch(arch).fnuz_floats else "torch.float8_e4m3fn"
    return f"torch.{dtype}"


def padded_m(m: int, n: int, level: int) -> int:
    """Return the padded M that AITER looks up if a table lacks M (`getPaddedM` of its gemm_common.cu)."""
    if level == 0:
        step = next((step for most, step in _FINE_STEPS if m <= most), _FINEST_ABOVE)
        return -(-m // step) * step
    return _MOST_M if m > _MOST_M and n > _WIDE_N else 1 << (m - 1).bit_length()


def looked_up(problem: AiterGemm) -> tuple[int, ...]:
    """Return the values of M by which AITER looks a shape up, in order."""
    return tuple(dict.fromkeys([problem.m, *(padded_m(problem.m, problem.n, level) for level in (0, 1))]))


def key_cells(arch: str, problem: AiterGemm) -> dict[str, Any]:
    """Return the cells by which AITER looks up a shape's row; which of them its table has depends on the family."""
    sizes = (arch, problem.num_cus, problem.m, problem.n, problem.k)
    return dict(zip(KEY, (*sizes, torch_dtype(problem.dtype, arch)), strict=True))


def columns_of(family: str) -> list[str]:
    """Return the columns of a family's measured tables."""
    return [*_KEY, *_STATED[family], *_CHOICE]


def table_text(lines: Sequence[TunedLine]) -> str:
    """Return the text of a table of rows of one family."""
    families = {line.problem.family for line in lines}
    if len(families) != 1 or len({line.is_predicted for line in lines}) != 1:
        what = "of several families" if len(families) > 1 else "measured and predicted, or none at all"
        raise DataError(f"rows of one table of AITER must not be {what}", "write separate tables", code="mixed-data")
    family = families.pop()
    seen: set[tuple[Any, ...]] = set()
    for line in lines:
        _check(line, family, seen)
    names = [*columns_of(family), *([PREDICTED] if lines[0].is_predicted else [])]
    return written(lines, names)


def written(lines: Iterable[TableRow], names: Sequence[str]) -> str:
    """Return the text of a table with these columns."""
    return csv_text((line.cells() for line in lines), names)


def csv_text(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return CSV text of these columns of the rows."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _check(line: TunedLine, family: str, seen: set[tuple[Any, ...]]) -> None:
    if line.kernel not in known_names(family, line.problem.library, line.arch):
        raise DataError(
            f"AITER has no kernel {line.kernel} for {line.problem.canonical()} on {line.arch}", code="unknown-kernel"
        )
    if line.key in seen:
        raise DataError(
            f"duplicate shape for AITER: {line.problem.canonical()}",
            "omit one of them",
            code="duplicate-rows",
        )
    seen.add(line.key)


def write_tuned(rows: MeasuredRows, path: Path) -> list[str]:
    """Write a dataset's rows as a tuned table: the winner of each shape, or predictions that were read back."""
    lines = dataset_lines(rows)
    return write_lines(path, table_text(lines), len(rows) - len(lines), "slower kernels and failures")


def write_lines(path: Path, text: str, omitted: int, what: str) -> list[str]:
    """Write a table of a dataset's rows; the warning counts and describes the omitted rows."""
    write_output(path, text.encode())
    return [f"rows of {what} are not in {path}: {omitted}"] if omitted else []


def dataset_lines(rows: MeasuredRows) -> list[TunedLine]:
    """Return the winners of a dataset's shapes, of any library, in the order of the rows, and its predictions."""
    from ckh.ops.aiter_gemm.operation import OPERATION

    return fastest(TunedLine(*fields) for fields in timed_rows(rows, OPERATION))


def timed_rows(rows: MeasuredRows, op: Operation[Any, Any]) -> Iterator[tuple[str, Any, str, float, bool]]:
    """Yield the rows of a dataset with a time or a bound: architecture, problem, kernel, us, is_predicted."""
    names = [*op.problems.identity, "arch", "kernel", "status", "is_valid", "latency_ms", "message"]
    for block in rows.blocks(names):
        for row in block.to_pylist():
            is_predicted = row["status"] == Status.PREDICTED
            if row["is_valid"] or is_predicted:
                time_us = bound_of(row["message"]) if is_predicted else row["latency_ms"] * 1e3
                yield row["arch"], op.problems.of_row(row), row["kernel"], time_us, is_predicted


def fastest(lines: Iterable[_Row]) -> list[_Row]:
    """Return the fastest of the rows that AITER would look up for one shape, measured and predicted rows separately."""
    result: dict[tuple[Any, ...], _Row] = {}
    for line in lines:
        key = (*line.key, line.is_predicted)
        if key not in result or line.time_us < result[key].time_us:
            result[key] = line
    return list(result.values())


_BOUND = "at most "


def bound_message(time_us: float) -> str:
    """Return the message of a dataset's row that states the bound of a prediction; `bound_of` parses it."""
    return f"{_BOUND}{time_us!r} us"


def bound_of(message: str) -> float:
    """Return the bound of a prediction in microseconds."""
    try:
        return float(str(message).removeprefix(_BOUND).removesuffix(" us"))
    except ValueError:
        raise DataError(f"not the bound of a prediction: {message!r}", code="bad-field") from None


def by_family(lines: Iterable[TunedLine]) -> dict[str, list[TunedLine]]:
    """Return the rows by family."""
    result: dict[str, list[TunedLine]] = {}
    for line in lines:
        result.setdefault(line.problem.family, []).append(line)
    return result
