"""AITER's tuned GEMM tables.

Rows of other libraries, and of kernels that are not in AITER's current lists, are skipped and counted.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckh.data.formats import Formats, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.readers.cells import stated_time
from ckh.errors import DataError, UsageError
from ckh.files.account import LeftOut
from ckh.files.outputs import FileKind, head_of
from ckh.files.untrusted import integer
from ckh.ops.aiter.tables import (
    PREDICTED,
    WRONG,
    TableRow,
    Won,
    arch_of,
    fastest,
    is_refused,
    rates,
    read_csv,
    sniff_csv,
    table_text,
    timed_rows,
    write_lines,
)
from ckh.ops.aiter_gemm.kernel import LISTS, InstalledKernel, kernel_numbers, known_names, parse_kernel, resolved
from ckh.ops.aiter_gemm.operation import KEY, key_cells
from ckh.ops.aiter_gemm.problem import ANY, CKTILE, FAMILIES, FAMILY_FACTS, OP_TYPE, AiterGemm
from ckh.problems import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ckh.data.formats import MeasuredRows

CSV = "aiter-csv"
# Reasons why rows are skipped or refused.
BAD_CELL = "with a cell that is not a number"
BAD = "with a size or element type that is impossible"
FOREIGN = "of a library that ckh does not rank"
UNLISTED = "of a kernel that is not in AITER's lists"

MOST_WRONG = 0.05  # share of elements, by which AITER's tuner refuses a kernel
NO_ID = -1  # of CK Tile's kernels, if a dataset is written without an AITER that numbers them
_SHUFFLED = "bpreshuffle"
_CHOICE = ("kernelId", "splitK", "us", "kernelName", "tflops", "bw", "errRatio")
_REQUIRED = ("cu_num", "M", "N", "K", "us", "kernelName")


@dataclass(frozen=True, slots=True)
class TunedLine(TableRow):
    """A row of a tuned table."""

    built_as: InstalledKernel | None = None
    """Name and number of the kernel in the AITER that builds it; None: as in `NUMBERED_BY`."""

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
            "libtype": kernel.library,
            "kernelId": built.number,
            "splitK": kernel.split_k,
            "us": f"{self.time_us:.10g}",
            "kernelName": built.name,
            **rates(problem, None if self.is_predicted else self.time_us),
            "errRatio": "",
            PREDICTED: 1,
        }


def columns_of(family: str) -> list[str]:
    """Return the columns of a family's measured tables."""
    return [*KEY[:-1], *FAMILY_FACTS[family]["columns"], *_CHOICE]


def gemm_table(lines: Sequence[TunedLine]) -> str:
    """Return the text of a table of rows of one family."""
    if len(families := {line.problem.family for line in lines}) > 1:
        message = "rows of one table of AITER must not be of several families"
        raise DataError(message, "write separate tables", code="mixed-data")
    columns = [name for family in families for name in columns_of(family)]
    return table_text(lines, columns, lambda row: known_names(row.problem.family, ANY, row.arch))


def _write(rows: MeasuredRows, path: Path) -> list[str]:
    """Write a dataset's rows as a tuned table: the winner of each shape, or predictions that were read back."""
    from ckh.ops.aiter_gemm.operation import OPERATION

    lines = fastest(TunedLine(*fields) for fields in timed_rows(rows, OPERATION))
    return write_lines(path, gemm_table(lines), len(rows) - len(lines), "slower kernels and failures")


def _is_profile(head: bytes) -> bool:
    """Whether a table is a tuner's profile: its first two rows are of one shape, which a table of winners has once."""
    rows = csv.DictReader(head.decode("utf-8-sig", "replace").splitlines()[:3])
    shapes = [[row.get(name) for name in ("cu_num", "M", "N", "K", "q_dtype_w")] for row in rows]
    return len(shapes) > 1 and shapes[0] == shapes[1]


def read_tuned(path: Path, options: ReadOptions) -> Reading:
    """Read a tuned table, and infer what its tuner tried: libraries and splits by winners, lists by a column `date`."""
    libraries, splits, dates = set(), {0}, set()
    is_profile = _is_profile(head_of(path))

    def winners(cells: dict[str, str]) -> list[Won]:
        if "B" in cells:
            raise DataError(f"{path} has batched GEMMs, which are not supported", code="unsupported")
        if is_profile and is_refused(cells.get("errRatio", ""), MOST_WRONG):
            raise LeftOut(WRONG)
        won = _winner(cells, path.name, options)
        libraries.add(won.kernel.library)
        splits.update(range(won.kernel.split_k + 1))
        dates.add(cells.get("date", ""))
        return [won]

    reading = read_csv(path, options, CSV, _REQUIRED, winners, op_type=OP_TYPE)
    tried: dict[str, Any] = {"library": sorted(libraries), "split_k": sorted(splits)}
    if dates and all(dates):
        tried["listed"] = max((since for since in LISTS if since <= max(dates)), default=min(LISTS))
    return replace(reading, sources=tuple({**source, "tried": tried, "inferred": True} for source in reading.sources))


def _winner(cells: dict[str, str], table: str, options: ReadOptions) -> Won:
    def number(column: str, convert: Callable[[str], float] = integer) -> Any:
        try:
            return convert(cells[column])
        except ValueError:
            raise LeftOut(BAD_CELL, f"{column} is {cells[column]!r}") from None

    num_cus, m, n, k, time_us = *map(number, ("cu_num", "M", "N", "K")), number("us", stated_time)
    base, split_k = resolved(cells["kernelName"]), number("splitK") if "splitK" in cells else 0
    try:
        kernel = parse_kernel(f"{base}_splitk{split_k}" if split_k else base)
    except DataError:
        raise LeftOut(FOREIGN) from None
    arch, family = arch_of(cells.get("gfx", ""), num_cus, options), kernel.family
    # CK Tile's block-scaled kernels serve shuffled operands too.
    if kernel.library == CKTILE and family == "a8w8_blockscale" and _SHUFFLED in table:
        family = f"{family}_{_SHUFFLED}"
    if FAMILY_FACTS[family]["pools"].get(kernel.library, ("", [0]))[1] == [0]:  # AITER passes the split to no kernel
        kernel = replace(kernel, split_k=0)
    # AITER's tuner of `a8w8` used int8 before its tables had a column for it.
    dtype = dtype_name((cells.get("q_dtype_w") or "int8").removeprefix("torch."))
    if len(FAMILIES[family]) == 1:
        dtype = FAMILIES[family][0]
    try:
        problem = AiterGemm(m, n, k, family, dtype, num_cus=num_cus or -1)
    except UsageError as error:
        raise LeftOut(BAD, error.message) from None
    if kernel.name not in known_names(family, ANY, arch):
        raise LeftOut(UNLISTED)
    return Won(arch, problem, kernel, time_us, PREDICTED in cells and bool(number(PREDICTED, float)))


FORMATS = Formats(
    readers=(Reader(CSV, sniff_csv(_REQUIRED), read_tuned),),
    rows=(
        RowsFormat(
            "aiter",
            "a tuned table of AITER",
            FileKind("tuned table of AITER", lambda path: head_of(path).split(b",", 1)[0] in (b"gfx", b"cu_num")),
            _write,
        ),
    ),
)
