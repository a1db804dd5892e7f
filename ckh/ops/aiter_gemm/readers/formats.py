"""Readers of AITER's tuned GEMM tables: its CSV files, and Parquet files of collected tables; and of FBGEMM's choices.

FBGEMM's are the kernels that its dispatch names for shapes: winners of third-party tunings, without times.

A row of AITER's is the winning kernel of a shape and its time. Times of the other kernels are unknown: such data
are for `ckh train --labels winners`. Rows of other libraries, and of kernels that are not in AITER's current lists, are
skipped and counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ckh.data.formats import Formats, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.readers.cells import WRONG_CELLS, read_header
from ckh.data.readers.reader import (
    BadRows,
    MissingTime,
    parquet_columns,
    parquet_frame,
    read_bytes,
    source_of,
    source_of_file,
    stated_time,
)
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import store
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.untrusted import as_text, csv_rows, integer
from ckh.ops.aiter_gemm.kernel import OF_FBGEMM, parse_kernel
from ckh.ops.aiter_gemm.kernels.pool import known_names, resolved
from ckh.ops.aiter_gemm.problem import CKTILE, FAMILIES, FBGEMM, OP_TYPE, AiterGemm
from ckh.ops.aiter_gemm.readers.tuned_csv import PREDICTED, TUNED, bound_message, write_tuned
from ckh.ops.aiter_gemm.tuned_device import ARCH_OF_CUS, compute_units
from ckh.problems import dtype_name
from ckh.schema import Column, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.formats import ReadOptions
    from ckh.ops.aiter_gemm.kernel import AiterKernel


CSV, PARQUET = "aiter-csv", "aiter-parquet"
BAD_CELL = "with a cell that is not a number"

_REQUIRED = ("cu_num", "M", "N", "K", "us", "kernelName")
_BATCHED = "B"
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


def sniff_csv(head: bytes) -> bool:
    """True if the first line has the columns of AITER's tables."""
    names = {name.strip().strip('"') for name in head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").split(",")}
    return names.issuperset(_REQUIRED)


def sniff_parquet(head: bytes) -> bool:
    """True if a Parquet file has the columns of collected tables."""
    return parquet_columns(head).issuperset(column.name for column in _COLUMNS[:-1])


def read_csv(path: Path, options: ReadOptions) -> Reading:
    """Read a tuned table."""
    content = read_bytes(path)
    names = read_header(path, content)
    if missing := [name for name in _REQUIRED if name not in names]:
        raise DataError(
            f"{path}: column {missing[0]} is missing", "expected " + ", ".join(_REQUIRED), code="missing-column"
        )
    if _BATCHED in names:
        raise DataError(f"{path} has batched GEMMs, which are not supported", code="unsupported")
    bad = BadRows()
    rows = list(_csv_rows(path, content, names, bad))
    if not options.skip_bad:
        bad.refuse(path)
    left_out = Counter(bad.left_out())
    stored = store(list(tables(rows, options, path, left_out)), options.output)
    return Reading(stored, (source_of(path, content, CSV),), bad=dict(left_out))


def read_parquet(path: Path, options: ReadOptions) -> Reading:
    """Read a Parquet file of collected tables. For a shape tuned again with the same winner, the last row is used."""
    frame = parquet_frame(path, _COLUMNS).sort_values("last", kind="stable")
    left_out: Counter[str] = Counter()
    stored = store(list(tables(_frame_rows(frame), options, path, left_out)), options.output)
    return Reading(stored, (source_of_file(path, PARQUET),), bad=dict(left_out))


def _frame_rows(frame: Any) -> Iterator[TunedRow]:
    for row in frame.itertuples(index=False):
        yield TunedRow(
            arch=str(row.gfx or ""),
            num_cus=int(row.cus),
            m=int(row.M),
            n=int(row.N),
            k=int(row.K),
            dtype=str(row.q_dtype_w or ""),
            kernel=str(row.kernel),
            split_k=int(row.split_k),
            time_us=float(row.time_us),
            hint=str(row.family or ""),
        )


def _csv_rows(path: Path, content: bytes, names: list[str], bad: BadRows) -> Iterator[TunedRow]:
    rows = csv_rows(path, as_text(path, content), fills=True)
    next(rows)
    for line, cells in rows:
        if not any(cells):
            continue
        if len(cells) != len(names):
            bad.add(WRONG_CELLS, line, f"{len(cells)} cells instead of {len(names)}")
            continue
        try:
            yield _csv_row(dict(zip(names, cells, strict=True)), path.name)
        except MissingTime:
            bad.without_time.append(line)
        except _Bad as why:
            bad.add(BAD_CELL, line, str(why))


class _Bad(Exception):  # noqa: N818 - a cell, which becomes a `BadRow`
    """A cell that is not a number."""


def _csv_row(row: dict[str, str], name: str) -> TunedRow:
    def number(column: str, convert: Callable[[str], float]) -> float:
        try:
            return convert(row[column])
        except ValueError:
            raise _Bad(f"{column} is {row[column]!r}") from None

    return TunedRow(
        arch=row.get("gfx", ""),
        num_cus=int(number("cu_num", integer)),
        m=int(number("M", integer)),
        n=int(number("N", integer)),
        k=int(number("K", integer)),
        dtype=row.get("q_dtype_w", "").removeprefix("torch."),
        kernel=row["kernelName"],
        split_k=int(number("splitK", integer)) if "splitK" in row else 0,
        time_us=number("us", stated_time),
        hint=name,
        is_predicted=PREDICTED in row and bool(number(PREDICTED, float)),
    )


FBGEMM_FORMAT = "fbgemm-parquet"
OTHER_KIND = "of a kind of GEMM that ckh does not know"
REPLACED = "of a kernel that a later version of FBGEMM replaced"
IMPOSSIBLE = "with a size or kernel that is impossible"
_ARCH, _GPU = "gfx942", "MI300X"  # according to the pull requests that added the tables
_FBGEMM_COLUMNS = (
    Column("op", "string", "", "kind of GEMM"),
    Column("table", "string", "", "shape, or layer: up to this M"),
    *(Column(name, "int64", "", "") for name in ("m", "n", "k")),
    Column("kernel", "string", "", "name of the kernel"),
    Column("groups", "int64", "", "of batched and grouped GEMMs", nullable=True),
    Column("last", "string", "", "when it was last in FBGEMM"),
    Column("repo", "string", "", "of which repository"),
)


def sniff_fbgemm(head: bytes) -> bool:
    """True if a Parquet file has the columns of FBGEMM's collected dispatch."""
    return parquet_columns(head).issuperset(column.name for column in _FBGEMM_COLUMNS if not column.nullable)


def read_fbgemm(path: Path, options: ReadOptions) -> Reading:
    """Read the kernel that FBGEMM last named for each shape."""
    frame = parquet_frame(path, _FBGEMM_COLUMNS).sort_values("last", kind="stable")
    left_out: Counter[str] = Counter()
    if (options.arch or _ARCH).split(":", 1)[0] != _ARCH:
        raise DataError(f"{path}: all rows are {OTHER_ARCH}: they are of {_ARCH}", code="empty")
    won: dict[AiterGemm, AiterKernel] = {}
    for row in frame.itertuples(index=False):
        if row.op not in OF_FBGEMM:
            left_out[OTHER_KIND] += 1
            continue
        try:
            kernel = parse_kernel(str(row.kernel))
            problem = _fbgemm_problem(row, kernel.family)
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
    stored = store([_fbgemm_table(won, path.name)], options.output)
    return Reading(stored, (source_of_file(path, FBGEMM_FORMAT),), bad=dict(+left_out))


def _fbgemm_problem(row: Any, family: str) -> AiterGemm:
    groups = 0 if row.groups is None or row.groups != row.groups else int(row.groups)
    sizes = int(row.m), int(row.n), int(row.k)
    return AiterGemm(*sizes, family, FAMILIES[family][0], FBGEMM, num_cus=compute_units(0, _GPU), groups=groups)


def _fbgemm_table(won: dict[AiterGemm, AiterKernel], run_id: str) -> object:
    results = Results([str(Status.CHOSEN)] * len(won), np.full(len(won), np.nan), {})
    return build_table(Pairs.of(won.items(), OP_TYPE), results, Origin.on_gpu(_ARCH, compute_units(0, _GPU), run_id))


FOREIGN = "of a library other than Composable Kernel"
UNLISTED = "of a kernel that is not in AITER's lists"
UNKNOWN_ARCH = "of an architecture that is unknown or not stated"
OTHER_ARCH = "of another architecture than --arch"
NO_TIME = "without a time"
BAD = "with a size, time or element type that is impossible"

_SHUFFLED = "bpreshuffle"
_US_PER_MS = 1000.0


class TunedRow(NamedTuple):
    """A row of a table, as stated there.

    Attributes:
        arch: empty if only compute units are stated.
        dtype: element type of the weights, without `torch.`; empty if the table has no such column.
        hint: a family, or the file's name; it selects the family of kernels that serve two.
        is_predicted: whether ckh predicted the kernel, and the time is an upper bound.
    """

    arch: str
    num_cus: int
    m: int
    n: int
    k: int
    dtype: str
    kernel: str
    split_k: int
    time_us: float
    hint: str
    is_predicted: bool = False


class LeftOut(Exception):  # noqa: N818 - the row is left out and counted
    """A skipped row, with the reason. Impossible rows stop a conversion."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class Won:
    """A winner: architecture, problem, kernel, and its time, or an upper bound if predicted."""

    arch: str
    problem: AiterGemm
    kernel: AiterKernel
    time_us: float
    is_predicted: bool


def winner_of(row: TunedRow, options: ReadOptions) -> Won:
    """Return the winner of a row."""
    try:
        kernel = parse_kernel(_named(row))
    except DataError:
        raise LeftOut(FOREIGN) from None
    arch = _arch(row, options)
    family = _family(kernel, row.hint)
    try:
        problem = AiterGemm(row.m, row.n, row.k, family, _dtype(row, family), kernel.library, num_cus=row.num_cus or -1)
    except UsageError as error:
        raise LeftOut(BAD, error.message) from None
    if not np.isfinite(row.time_us) or row.time_us == 0:
        raise LeftOut(NO_TIME)
    if row.time_us < 0:
        raise LeftOut(BAD, f"the time of {problem.canonical()} is {row.time_us:g}")
    if kernel.name not in known_names(family, kernel.library, arch):
        raise LeftOut(UNLISTED)
    return Won(arch, problem, kernel, row.time_us, row.is_predicted)


def tables(rows: Iterable[TunedRow], options: ReadOptions, path: Path, left_out: Counter[str]) -> Iterator[pa.Table]:
    """Yield the winners as rows of a dataset, a table per device; skipped rows are counted."""
    result: dict[tuple[str, int], list[Won]] = {}
    for row in rows:
        try:
            won = winner_of(row, options)
        except LeftOut as why:
            if why.reason == BAD and not options.skip_bad:
                raise DataError(
                    f"{path}: a row {BAD}: {why.detail}", "skip such rows with --skip-bad", code="bad-row"
                ) from None
            left_out[why.reason] += 1
            continue
        result.setdefault((won.arch, won.problem.num_cus), []).append(won)
    if not result:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise DataError(f"{path}: no usable row ({reasons or 'the file has no rows'})", code="empty")
    for (arch, num_cus), some in sorted(result.items()):
        yield _table(arch, num_cus, some, path.name)


def _table(arch: str, num_cus: int, some: list[Won], run_id: str) -> pa.Table:
    from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
    from ckh.schema import Status

    is_predicted = np.array([won.is_predicted for won in some])
    latency_ms = np.where(is_predicted, np.nan, np.array([won.time_us for won in some]) / _US_PER_MS)
    messages = [bound_message(won.time_us) if won.is_predicted else None for won in some]
    return build_table(
        Pairs.of(((won.problem, won.kernel) for won in some), OP_TYPE),
        Results(status_of(~is_predicted, Status.PREDICTED), latency_ms, {"message": messages}),
        Origin.on_gpu(arch, num_cus, run_id),
    )


def _named(row: TunedRow) -> str:
    base = resolved(row.kernel)
    return f"{base}_splitk{row.split_k}" if row.split_k else base


def _arch(row: TunedRow, options: ReadOptions) -> str:
    from ckh.archs import arch_names

    wanted = (options.arch or "").split(":", 1)[0]
    arch = row.arch.split(":", 1)[0] or wanted or ARCH_OF_CUS.get(row.num_cus, "")
    if arch not in arch_names():
        raise LeftOut(UNKNOWN_ARCH)
    if wanted and arch != wanted:
        raise LeftOut(OTHER_ARCH)
    return arch


def _family(kernel: AiterKernel, hint: str) -> str:
    """Return a kernel's own family; CK Tile's block-scaled kernels serve shuffled operands too."""
    serves_both = kernel.library == CKTILE and kernel.family == "a8w8_blockscale"
    return f"{kernel.family}_{_SHUFFLED}" if serves_both and _SHUFFLED in hint else kernel.family


def _dtype(row: TunedRow, family: str) -> str:
    """Return the element type; AITER's tuner of `a8w8` used int8 before its tables had a column for it."""
    if len(FAMILIES[family]) == 1:
        return FAMILIES[family][0]
    if not row.dtype:
        return "int8"
    if (name := dtype_name(row.dtype)) not in FAMILIES[family]:
        raise LeftOut(BAD, f"the element type is {row.dtype!r}")
    return name


FORMATS = Formats(
    readers=(
        Reader(CSV, sniff_csv, read_csv),
        Reader(PARQUET, sniff_parquet, read_parquet),
        Reader(FBGEMM_FORMAT, sniff_fbgemm, read_fbgemm),
    ),
    rows=(RowsFormat("aiter", "a tuned table of AITER", TUNED, write_tuned),),
)
