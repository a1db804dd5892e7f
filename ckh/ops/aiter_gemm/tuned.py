"""AITER's tuned GEMM tables: its CSV files, and Parquet files of collected tables; and FBGEMM's choices.

FBGEMM's are the kernels that its dispatch names for shapes: winners of third-party tunings, without times.

Rows of other libraries, and of kernels that are not in AITER's current lists, are skipped and counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.formats import Formats, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.readers.reader import parquet_columns, parquet_frame, source_of_file, stated_time
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import store
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.outputs import FileKind, head_of
from ckh.files.untrusted import integer
from ckh.ops.aiter.devices import compute_units
from ckh.ops.aiter.tables import (
    OTHER_ARCH,
    PREDICTED,
    LeftOut,
    TableRow,
    Won,
    arch_of,
    fastest,
    rates,
    read_csv,
    read_winners,
    sniff_csv,
    table_text,
    timed_rows,
    write_lines,
)
from ckh.ops.aiter_gemm.kernel import OF_FBGEMM, InstalledKernel, kernel_numbers, known_names, parse_kernel, resolved
from ckh.ops.aiter_gemm.operation import KEY, key_cells
from ckh.ops.aiter_gemm.problem import CKTILE, FAMILIES, FBGEMM, OP_TYPE, AiterGemm
from ckh.problems import dtype_name
from ckh.schema import Column, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ckh.data.formats import MeasuredRows
    from ckh.ops.aiter_gemm.kernel import AiterKernel

CSV, PARQUET, FBGEMM_FORMAT = "aiter-csv", "aiter-parquet", "fbgemm-parquet"
# Reasons why rows are skipped or refused.
BAD_CELL = "with a cell that is not a number"
BAD = "with a size, time or element type that is impossible"
FOREIGN = "of a library other than Composable Kernel"
UNLISTED = "of a kernel that is not in AITER's lists"
NO_TIME = "without a time"
OTHER_KIND = "of a kind of GEMM that ckh does not know"
REPLACED = "of a kernel that a later version of FBGEMM replaced"
IMPOSSIBLE = "with a size or kernel that is impossible"

NO_ID = -1  # of CK Tile's kernels, if a dataset is written without an AITER that numbers them
_SHUFFLED = "bpreshuffle"
# Further columns of each family's tables.
_STATED = {
    "a8w8": ("q_dtype_w",),
    "a8w8_bpreshuffle": ("q_dtype_w", "libtype"),
    "a8w8_blockscale": ("libtype",),
    "a8w8_blockscale_bpreshuffle": ("libtype",),
    "a4w4_blockscale": (),
}
_CHOICE = ("kernelId", "splitK", "us", "kernelName", "tflops", "bw", "errRatio")
_REQUIRED = ("cu_num", "M", "N", "K", "us", "kernelName")
_COLUMNS = (
    Column("family", "string", "", "of kernels", nullable=True),
    Column("gfx", "string", "", "architecture", nullable=True),
    *(Column(name, "int64", "", "") for name in ("cus", "M", "N", "K")),
    Column("q_dtype_w", "string", "", "of the weights", nullable=True),
    Column("kernel", "string", "", "name of the kernel"),
    Column("split_k", "int64", "", ""),
    Column("time_us", "float64", "us", "", nullable=True),
    Column("last", "string", "", "when the table was last changed", nullable=True),
)
_ARCH, _GPU = "gfx942", "MI300X"  # of FBGEMM's tables, according to the pull requests that added them
_FBGEMM_COLUMNS = (
    Column("op", "string", "", "kind of GEMM"),
    Column("table", "string", "", "shape, or layer: up to this M"),
    *(Column(name, "int64", "", "") for name in ("m", "n", "k")),
    Column("kernel", "string", "", "name of the kernel"),
    Column("groups", "int64", "", "of batched and grouped GEMMs", nullable=True),
    Column("last", "string", "", "when it was last in FBGEMM"),
    Column("repo", "string", "", "of which repository"),
)


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
            "libtype": problem.library,
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
    return [*KEY[:-1], *_STATED[family], *_CHOICE]


def gemm_table(lines: Sequence[TunedLine]) -> str:
    """Return the text of a table of rows of one family."""
    if len(families := {line.problem.family for line in lines}) > 1:
        message = "rows of one table of AITER must not be of several families"
        raise DataError(message, "write separate tables", code="mixed-data")
    columns = [name for family in families for name in columns_of(family)]
    return table_text(lines, columns, lambda row: known_names(row.problem.family, row.problem.library, row.arch))


def _write(rows: MeasuredRows, path: Path) -> list[str]:
    """Write a dataset's rows as a tuned table: the winner of each shape, or predictions that were read back."""
    from ckh.ops.aiter_gemm.operation import OPERATION

    lines = fastest(TunedLine(*fields) for fields in timed_rows(rows, OPERATION))
    return write_lines(path, gemm_table(lines), len(rows) - len(lines), "slower kernels and failures")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table, as stated there."""

    arch: str  # empty if only compute units are stated
    num_cus: int
    sizes: tuple[int, int, int]
    dtype: str  # element type of the weights, without `torch.`; empty if the table has no such column
    kernel: str
    split_k: int
    time_us: float
    hint: str  # a family, or the file's name; it selects the family of kernels that serve two
    is_predicted: bool = False


def read_tuned(path: Path, options: ReadOptions) -> Reading:
    """Read a tuned table."""

    def winners(_line: int, cells: dict[str, str]) -> list[Won]:
        if "B" in cells:
            raise DataError(f"{path} has batched GEMMs, which are not supported", code="unsupported")

        def number(column: str, convert: Callable[[str], float] = integer) -> Any:
            try:
                return convert(cells[column])
            except ValueError:
                raise LeftOut(BAD_CELL, f"{column} is {cells[column]!r}") from None

        row = _Row(
            arch=cells.get("gfx", ""),
            num_cus=number("cu_num"),
            sizes=(number("M"), number("N"), number("K")),
            dtype=cells.get("q_dtype_w", "").removeprefix("torch."),
            kernel=cells["kernelName"],
            split_k=number("splitK") if "splitK" in cells else 0,
            time_us=number("us", stated_time),
            hint=path.name,
            is_predicted=PREDICTED in cells and bool(number(PREDICTED, float)),
        )
        return [_winner(row, options)]

    return read_csv(path, options, CSV, _REQUIRED, winners, op_type=OP_TYPE)


def _read_parquet(path: Path, options: ReadOptions) -> Reading:
    """Read a Parquet file of collected tables. For a shape tuned again with the same winner, the last row is used."""
    frame = parquet_frame(path, _COLUMNS).sort_values("last", kind="stable")

    def rows() -> Iterator[tuple[int, _Row]]:
        for row in frame.itertuples():
            yield (
                int(row.Index) + 1,
                _Row(
                    arch=str(row.gfx or ""),
                    num_cus=int(row.cus),
                    sizes=(int(row.M), int(row.N), int(row.K)),
                    dtype=str(row.q_dtype_w or ""),
                    kernel=str(row.kernel),
                    split_k=int(row.split_k),
                    time_us=float(row.time_us),
                    hint=str(row.family or ""),
                ),
            )

    source = source_of_file(path, PARQUET)
    return read_winners(path, options, source, rows(), lambda _, row: [_winner(row, options)], op_type=OP_TYPE)


def _winner(row: _Row, options: ReadOptions) -> Won:
    base = resolved(row.kernel)
    try:
        kernel = parse_kernel(f"{base}_splitk{row.split_k}" if row.split_k else base)
    except DataError:
        raise LeftOut(FOREIGN) from None
    arch, family = arch_of(row.arch, row.num_cus, options), kernel.family
    # CK Tile's block-scaled kernels serve shuffled operands too.
    if kernel.library == CKTILE and family == "a8w8_blockscale" and _SHUFFLED in row.hint:
        family = f"{family}_{_SHUFFLED}"
    # AITER's tuner of `a8w8` used int8 before its tables had a column for it.
    dtype = dtype_name(row.dtype) if row.dtype else "int8"
    if len(FAMILIES[family]) == 1:
        dtype = FAMILIES[family][0]
    elif dtype not in FAMILIES[family]:
        raise LeftOut(BAD, f"the element type is {row.dtype!r}")
    try:
        problem = AiterGemm(*row.sizes, family, dtype, kernel.library, num_cus=row.num_cus or -1)
    except UsageError as error:
        raise LeftOut(BAD, error.message) from None
    if not np.isfinite(row.time_us) or row.time_us == 0:
        raise LeftOut(NO_TIME)
    if row.time_us < 0:
        raise LeftOut(BAD, f"the time of {problem.canonical()} is {row.time_us:g}")
    if kernel.name not in known_names(family, kernel.library, arch):
        raise LeftOut(UNLISTED)
    return Won(arch, problem, kernel, row.time_us, row.is_predicted)


def _read_fbgemm(path: Path, options: ReadOptions) -> Reading:
    """Read the kernel that FBGEMM last named for each shape."""
    frame = parquet_frame(path, _FBGEMM_COLUMNS).sort_values("last", kind="stable")
    left_out: Counter[str] = Counter()
    if (options.arch or _ARCH).split(":", 1)[0] != _ARCH:
        raise DataError(f"{path}: all rows are {OTHER_ARCH}: they are of {_ARCH}", code="empty")
    won: dict[AiterGemm, AiterKernel] = {}
    num_cus = compute_units(0, _GPU)
    for row in frame.itertuples(index=False):
        if row.op not in OF_FBGEMM:
            left_out[OTHER_KIND] += 1
            continue
        groups = 0 if row.groups is None or row.groups != row.groups else int(row.groups)
        try:
            kernel = parse_kernel(str(row.kernel))
            sizes, dtype = (int(row.m), int(row.n), int(row.k)), FAMILIES[kernel.family][0]
            problem = AiterGemm(*sizes, kernel.family, dtype, FBGEMM, num_cus=num_cus, groups=groups)
        except CkhError as error:
            if not options.skip_bad:
                raise DataError(
                    f"{path}: a row {IMPOSSIBLE}: {error.message}", "skip such rows with --skip-bad", code="bad-row"
                ) from None
            left_out[IMPOSSIBLE] += 1
            continue
        left_out[REPLACED] += problem in won
        won[problem] = kernel
    if not won:
        raise DataError(f"{path}: no row is of {', '.join(OF_FBGEMM)}", code="empty")
    results = Results([str(Status.CHOSEN)] * len(won), np.full(len(won), np.nan), {})
    table = build_table(Pairs.of(won.items(), OP_TYPE), results, Origin.on_gpu(_ARCH, num_cus, path.name))
    return Reading(store([table], options.output), (source_of_file(path, FBGEMM_FORMAT),), bad=dict(+left_out))


def _sniff_parquet(columns: Sequence[Column]) -> Callable[[bytes], bool]:
    """Return a function that is true if a Parquet file has the columns."""
    return lambda head: parquet_columns(head).issuperset(column.name for column in columns)


FORMATS = Formats(
    readers=(
        Reader(CSV, sniff_csv(_REQUIRED), read_tuned),
        Reader(PARQUET, _sniff_parquet(_COLUMNS[:-1]), _read_parquet),
        Reader(
            FBGEMM_FORMAT, _sniff_parquet([column for column in _FBGEMM_COLUMNS if not column.nullable]), _read_fbgemm
        ),
    ),
    rows=(
        RowsFormat(
            "aiter",
            "a tuned table of AITER",
            FileKind("tuned table of AITER", lambda path: head_of(path).split(b",", 1)[0] in (b"gfx", b"cu_num")),
            _write,
        ),
    ),
)
