"""AITER's tuned tables: rows of winners, read into datasets and written from them.

Measured rows have AITER's columns. Predicted rows have an additional column, `predicted`, and are written to separate
tables: their `us` is not a measured time but an upper bound, so that no predicted row displaces a measured row when
AITER merges tables (it keeps the row with the smallest `us`). A row is the winning kernel of a shape and its time;
times of the other kernels are unknown: such data are for `ckh train --labels winners`.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ckh.archs import arch_names
from ckh.data.formats import Reading
from ckh.data.readers.cells import read_bytes, read_header, source_of
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.data.spool import store
from ckh.errors import CkhError, DataError
from ckh.files.account import Account, LeftOut
from ckh.files.outputs import write_output
from ckh.files.untrusted import as_text, by_column, csv_rows
from ckh.ops.aiter.devices import ARCH_OF_CUS
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.formats import MeasuredRows, ReadOptions
    from ckh.ops.base import Operation, Problem

PREDICTED = "predicted"  # the column
OTHER_ARCH = "of another architecture than --arch"
WRONG = "of a kernel whose result AITER's tuner found wrong"
UNKNOWN_ARCH = "of an architecture that is unknown or not stated"
US_PER_MS = 1000.0
_US_FLOPS_PER_TFLOPS, _US_BYTES_PER_GB_S = 1e6, 1e3
_BOUND = "at most "


@dataclass(frozen=True, slots=True)
class TableRow(ABC):
    """A row of a tuned table."""

    arch: str
    problem: Any  # with the device's compute units
    kernel: str  # the complete name, with the split of K, or the names of both kernels
    time_us: float  # the measured time, or if predicted an upper bound
    is_predicted: bool

    @property
    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """The values by which AITER looks the row up."""

    @abstractmethod
    def cells(self) -> dict[str, Any]:
        """The row by column."""


_Row = TypeVar("_Row", bound=TableRow)


def rates(problem: Problem, time_us: float | None) -> dict[str, str]:
    """Return the cells of TFLOPS and GB/s of a measured time; empty without one."""
    if time_us is None:
        return {"tflops": "", "bw": ""}
    tflops, bandwidth = problem.flops / time_us / _US_FLOPS_PER_TFLOPS, problem.bytes / time_us / _US_BYTES_PER_GB_S
    return {"tflops": f"{tflops:.2f}", "bw": f"{bandwidth:.2f}"}


def table_text(lines: Sequence[_Row], columns: Sequence[str], listed: Callable[[_Row], Container[str]]) -> str:
    """Return the text of a table of measured or of predicted rows; `listed` has the names of AITER's kernels."""
    if len({line.is_predicted for line in lines}) != 1:
        raise DataError(
            "rows of one table of AITER must not be both measured and predicted, nor empty",
            "write separate tables",
            code="mixed-data",
        )
    seen: set[tuple[Any, ...]] = set()
    for line in lines:
        where = line.problem.canonical()
        if line.kernel not in listed(line):
            raise DataError(f"AITER has no kernel {line.kernel} for {where} on {line.arch}", code="unknown-kernel")
        if line.key in seen:
            raise DataError(f"duplicate shape for AITER: {where}", "omit one of them", code="duplicate-rows")
        seen.add(line.key)
    names = [*columns, *([PREDICTED] if lines[0].is_predicted else [])]
    return csv_text((line.cells() for line in lines), names)


def csv_text(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return CSV text of these columns of the rows."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_lines(path: Path, text: str, omitted: int, what: str) -> list[str]:
    """Write a table of a dataset's rows; the warning counts and describes the omitted rows."""
    write_output(path, text.encode())
    return [f"rows of {what} are not in {path}: {omitted}"] if omitted else []


def timed_rows(rows: MeasuredRows, op: Operation[Any, Any]) -> Iterator[tuple[str, Any, str, float, bool]]:
    """Yield the rows of a dataset with a time or a bound: architecture, problem, kernel, us, is_predicted."""
    names = [*op.problems.identity, "arch", "kernel", "status", "is_valid", "latency_ms", "message"]
    for block in rows.blocks(names):
        for row in block.to_pylist():
            is_predicted = row["status"] == Status.PREDICTED
            if row["is_valid"] or is_predicted:
                time_us = _bound_of(row["message"]) if is_predicted else row["latency_ms"] * 1e3
                yield row["arch"], op.problems.of_row(row), row["kernel"], time_us, is_predicted


def _bound_of(message: str) -> float:
    """Return the bound of a prediction in microseconds, from the message that `read_csv` writes."""
    try:
        return float(str(message).removeprefix(_BOUND).removesuffix(" us"))
    except ValueError:
        raise DataError(f"not the bound of a prediction: {message!r}", code="bad-field") from None


class Won(NamedTuple):
    """A winner, with its time, or an upper bound if predicted."""

    arch: str
    problem: Any
    kernel: Any
    time_us: float
    is_predicted: bool


_Timed = TypeVar("_Timed", bound=TableRow | Won)


def fastest(rows: Iterable[_Timed], by: Sequence[str] = ("key", "is_predicted")) -> list[_Timed]:
    """Return the fastest of rows with equal fields; by default those that AITER would look up for one shape."""
    fastest_by_key: dict[Any, _Timed] = {}
    for row in rows:
        key = attrgetter(*by)(row)
        if key not in fastest_by_key or row.time_us < fastest_by_key[key].time_us:
            fastest_by_key[key] = row
    return list(fastest_by_key.values())


def is_refused(share: str, most: float) -> bool:
    """Whether AITER's tuner refuses a kernel: its share of wrong elements, as 0.02 or 2.1%, is above `most`."""
    number = share.strip().removesuffix("%")
    with suppress(ValueError):
        return float(number) / (1 if number == share.strip() else 100) > most
    return False


def sniff_csv(required: Sequence[str]) -> Callable[[bytes], bool]:
    """Return a function that is true if the first line of a file has the required columns."""

    def sniff(head: bytes) -> bool:
        line = head.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
        return {name.strip().strip('"') for name in line.split(",")}.issuperset(required)

    return sniff


def read_csv(
    path: Path,
    options: ReadOptions,
    name: str,
    required: Sequence[str],
    winners: Callable[[dict[str, str]], list[Won]],
    *,
    op_type: str,
) -> Reading:
    """Read a tuned table of a format, or all times of a tuner, as one run; rows that are left out are counted.

    `winners` returns the kernels of a row, given its cells by column, or raises `LeftOut`.
    """
    content = read_bytes(path)
    names = read_header(path, content)
    if missing := [name for name in required if name not in names]:
        raise DataError(
            f"{path}: column {missing[0]} is missing", "expected " + ", ".join(required), code="missing-column"
        )
    rows = csv_rows(path, as_text(path, content))
    next(rows)
    account, source = Account(options.strict), source_of(path, content, name)
    won: dict[tuple[str, int], list[Won]] = defaultdict(list)
    for line, cells in rows:
        try:
            for winner in winners(by_column(names, cells)):
                won[winner.arch, winner.problem.num_cus].append(winner)
            account.use()
        except LeftOut as why:  # noqa: PERF203 - one row is no reason to drop the others
            account.take(why, f"line {line}")
        except CkhError as error:
            account.refuse(error, f"{path}:{line}")
    account.settle(str(path))
    run_id = f"{path.name}:{source['sha256'][:12]}"
    tables = (_table(device, rows, op_type, run_id) for device, rows in sorted(won.items()))
    return Reading(store(tables, options.output), (source,), account=account, repeats=True)


def _table(device: tuple[str, int], won: list[Won], op_type: str, run_id: str) -> pa.Table:
    is_predicted = np.array([winner.is_predicted for winner in won])
    latency_ms = np.where(is_predicted, np.nan, np.array([winner.time_us for winner in won]) / US_PER_MS)
    messages = [f"{_BOUND}{winner.time_us!r} us" if winner.is_predicted else None for winner in won]
    return build_table(
        Pairs.of(((winner.problem, winner.kernel) for winner in won), op_type),
        Results(status_of(~is_predicted, Status.PREDICTED), latency_ms, {"message": messages}),
        Origin.on_gpu(*device, run_id),
    )


def arch_of(stated: str, num_cus: int, options: ReadOptions) -> str:
    """Return the architecture of a row: the one that it states, else of --arch, else of its compute units."""
    wanted = (options.arch or "").split(":", 1)[0]
    arch = stated.strip().split(":", 1)[0] or wanted or ARCH_OF_CUS.get(num_cus, "")
    if arch not in arch_names():
        raise LeftOut(UNKNOWN_ARCH)
    if wanted and arch != wanted:
        raise LeftOut(OTHER_ARCH)
    return arch
