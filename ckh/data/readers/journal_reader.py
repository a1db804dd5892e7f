"""Reader of the journals of `ckh bench`. Failures are rows too; a later row of a pair replaces an earlier row.

A journal is read once: the numbers of all rows are kept on disk, and become tables when the last row of each pair is
known. Rows with a message, and unusable ones, are read again at their byte offsets.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from dataclasses import asdict
from itertools import count
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.formats import Reading, ReadOptions
from ckh.data.journal import Damage, KernelRecord, ReferenceRecord, ResultRow, RunRecord, iter_blocks, row_at
from ckh.data.readers.cells import source_of_file
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import Buckets, StoredRows
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.account import Account
from ckh.ops import operation
from ckh.schema import CALLING, CARD, CARD_COLUMNS, HARDWARE, MEASURED, REPEATED, RESOURCE_NAMES, SHORTEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.data.journal import Block
    from ckh.data.journal_records import Record
    from ckh.ops.base import AnyOperation

NAME = "journal"
BAD_PROBLEM = "with a problem that does not parse"
BAD_KERNEL = "with a kernel name that does not parse"
BAD_TIME = "with a time that is missing, zero, negative or not a number"
UNKNOWN_RUN = "of an unknown run"
MISMATCH = "with a kernel that is not for the problem"
DAMAGED = "that holds no record: a damaged line"

_EMULATED = "emulated"  # the kind of device
_NAMED = 3
_BATCH_ROWS = 1 << 15
_BUCKETS = 64
_STRETCH_BYTES = 1 << 24  # of a journal, read into one table
_MOST_STRETCHES = 1 << 32
_TEXTS = ("problem", "kernel", "run_id", "node", "status", "source_hash")  # numbered in order of appearance
_JSON_NAN = -1.0  # a wrong time, not a missing one
_FLAGS = ("remeasured", "by_graph")
_TIMES = ("latency_ms", "latency_min_ms")
_NUMBERS = ("spread", "time", "launch_ms")
# `first` is the offset of the first row of the pair, `before` its time.
_STORED = np.dtype(
    [
        *((name, "i8") for name in ("start", "line", "first")),
        *((name, "i4") for name in (*_TEXTS, "samples")),
        *((name, "?") for name in (*_FLAGS, "has_message")),
        *((name, "f8") for name in (*_TIMES, *_NUMBERS, "before", *CARD_COLUMNS)),
    ]
)


def sniff(head: bytes) -> bool:
    """Return True if the first line is a record of a journal."""
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"kind"' in line and b'"run_id"' in line


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a journal, which itself names the measured device."""
    is_collecting = gc.isenabled()
    gc.disable()  # it would look through the many rows, which hold no cycles, again and again
    try:
        with path.open("rb") as file:
            return _read(path, file, options)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error
    finally:
        if is_collecting:
            gc.enable()


def _read(path: Path, file: BinaryIO, options: ReadOptions) -> Reading:
    rows = _JournalRows(iter_blocks(file, path, skip_damaged=not options.strict), options.output)
    for run in rows.runs:
        _check_run(path, run)
    runs = {run.run_id: run for run in rows.runs}
    judge = _Judge(_operation(rows.runs, path), runs, rows.texts, file, Account(options.strict))
    kept, final = StoredRows(options.output), 0
    for records in rows.final():
        final += len(records)
        good = records[judge.good(records)]
        if len(good):
            judge.account.use(len(good))
            kept.add(_table(good, runs[rows.texts["run_id"][good["run_id"][0]]], judge, rows.compiled))
    if rows.damaged:
        judge.account.doubt(DAMAGED, count=rows.damaged)
    judge.account.settle(str(path))
    return Reading(
        kept,
        (source_of_file(path, NAME),),
        runs=tuple(
            {**asdict(run), "flags": list(run.flags), **({"looks": looks} if (looks := rows.looks.get(name)) else {})}
            for name, run in runs.items()
        ),
        account=judge.account,
        superseded=rows.count - final,
    )


class _JournalRows:
    """The numbers of the rows of a journal, on disk, and the content of its other records."""

    def __init__(self, blocks: Iterable[Block], output: Path | None) -> None:
        self.runs: list[RunRecord] = []
        self.looks: dict[str, list[list[float | None]]] = {}  # checks of the machine, by run
        self.compiled: dict[str, KernelRecord] = {}  # by `source_hash`; the last record wins
        self.damaged = self.count = 0
        self._output = output
        self._stored = Buckets(_STORED, output)
        self._node_of: dict[int, int] = {}  # problem -> the device that measured it last
        self._numbers = {name: defaultdict[str, int](count().__next__) for name in _TEXTS}
        self._batch: list[NDArray[Any]] = []
        for block in blocks:
            places = [place for place, record in enumerate(block.records) if isinstance(record, ResultRow)]
            if len(places) < len(block.records):
                for record in block.records:
                    self._note(record)
            if places:
                self._add(block, np.array(places))
        self._store()
        self.texts = {name: list(numbers) for name, numbers in self._numbers.items()}

    def _note(self, record: Record | Damage) -> None:
        """Take the content of a record other than a row."""
        if isinstance(record, RunRecord):
            self.runs.append(record)
            self._numbers["run_id"][record.run_id]
        elif isinstance(record, ReferenceRecord):
            look = [record.time, record.latency_ms, record.clock_mhz, record.temperature_c]
            self.looks.setdefault(record.run_id, []).append(look)
        elif isinstance(record, KernelRecord):
            self.compiled[record.source_hash] = record
        else:
            self.damaged += isinstance(record, Damage)

    def _add(self, block: Block, places: NDArray[np.int64]) -> None:
        """Take the numbers of a block's rows, which are at these places."""
        rows: list[Any] = [block.records[place] for place in places.tolist()]
        records = np.zeros(len(rows), _STORED)

        def take(name: str, values: Iterable[Any]) -> None:
            records[name] = np.fromiter(values, _STORED[name], len(rows))

        records["line"] = block.line + places
        records["start"] = np.array(block.starts)[places]
        for name, numbers in self._numbers.items():
            take(name, map(numbers.__getitem__, map(attrgetter(name), rows)))
        for name in _FLAGS:
            take(name, map(attrgetter(name), rows))
        for name in (*_NUMBERS, *_TIMES):
            values = list(map(attrgetter(name), rows))
            records[name] = np.array(values, np.float64)
            if name in _TIMES:
                for place in np.flatnonzero(np.isnan(records[name])).tolist():
                    if values[place] is not None:
                        records[name][place] = _JSON_NAN
        take("samples", (len(row.samples_ns) for row in rows))
        take("has_message", (row.message != "" for row in rows))
        cards = [row.card for row in rows]
        has_cards = any(cards)
        for name, column in zip(CARD, CARD_COLUMNS, strict=True):
            records[column] = np.array([card.get(name) for card in cards], np.float64) if has_cards else np.nan
        self._node_of.update(zip(records["problem"].tolist(), records["node"].tolist(), strict=True))
        self._batch.append(records)
        self.count += len(records)
        if sum(map(len, self._batch)) >= _BATCH_ROWS:
            self._store()

    def _store(self) -> None:
        """Write the numbers of the buffered rows to disk, and clear the buffer."""
        records = np.concatenate([np.zeros(0, _STORED), *self._batch])
        # Numbers of buckets are bytes, which are radix-sorted in one pass.
        self._stored.add(records, ((records["problem"] * 31 + records["kernel"]) % _BUCKETS).astype(np.uint8))
        self._batch.clear()

    def final(self) -> Iterator[NDArray[Any]]:
        """Yield the last row of each pair in arrays of some thousands of one run.

        Rows of a problem that another device measured again are left out (`Journal.final_rows`). A row takes the
        position of the pair's first row within its run.
        """
        final = Buckets(_STORED, self._output)
        node_of = np.array([self._node_of[problem] for problem in range(len(self._node_of))], np.int32)
        is_measured = np.array([text in MEASURED for text in self._numbers["status"]])
        for every in self._stored:
            rows = np.flatnonzero(every["node"] == node_of[every["problem"]])
            if not len(rows):
                continue
            problem, kernel = every["problem"][rows], every["kernel"][rows]
            order = np.lexsort((kernel, problem))  # stable: the rows of a pair stay in the journal's order
            is_new = (np.diff(problem[order]) != 0) | (np.diff(kernel[order]) != 0)
            first = every.take(rows[order[np.append(True, is_new)]])
            last = every.take(rows[order[np.append(is_new, True)]])
            is_known = is_measured[first["status"]] & (first["latency_ms"] >= SHORTEST_MS)
            last["first"] = first["start"]
            last["before"] = np.where(is_known & (first["start"] != last["start"]), first["latency_ms"], np.nan)
            final.add(last, last["run_id"].astype(np.int64) * _MOST_STRETCHES + first["start"] // _STRETCH_BYTES)
        for records in final:
            yield records.take(np.argsort(records["first"]))


def _operation(runs: Sequence[RunRecord], path: Path) -> AnyOperation:
    names = dict.fromkeys(run.op for run in runs)
    if len(names) != 1:
        raise DataError(
            f"{path} has runs of {len(names)} operations" if names else f"{path} has no results yet", code="empty"
        )
    try:
        return operation(next(iter(names)))
    except UsageError as error:
        raise DataError(f"{path}: {error.message}", error.hint, code=error.code) from error


def _check_run(path: Path, run: RunRecord) -> None:
    if run.device_kind == _EMULATED:
        raise DataError(
            f"{path} is from an {run.device}, which has no times",
            "measure on a real device",
            code="not-measured",
        )
    missing = [name for name in HARDWARE if name not in run.hardware]
    if missing:
        raise DataError(f"{path}: run {run.run_id} does not state the hardware's {missing[0]}", code="unknown-hardware")


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    """Parse a text; an error is returned."""
    try:
        return parse(text)
    except CkhError as error:
        return error


class _Judge:
    """Validates rows; each distinct problem and kernel is parsed once."""

    def __init__(
        self,
        op: AnyOperation,
        runs: dict[str, RunRecord],
        texts: dict[str, list[str]],
        file: BinaryIO,
        account: Account,
    ) -> None:
        self.texts, self.file = texts, file
        self.problems = [_parsed(op.problems.parse, text) for text in texts["problem"]]
        self.kernels = [_parsed(op.kernels.parse, text) for text in texts["kernel"]]
        self.account = account
        self._mismatch = op.kernels.mismatch
        self._is_run = np.array([name in runs for name in texts["run_id"]])
        self._is_problem = np.array([not isinstance(problem, CkhError) for problem in self.problems])
        self._is_kernel = np.array([not isinstance(kernel, CkhError) for kernel in self.kernels])
        self._is_measured = np.array([text in MEASURED for text in texts["status"]])

    def good(self, records: NDArray[Any]) -> NDArray[np.bool_]:
        """Mask of the usable rows; the others are counted."""
        ms, least_ms = (records[name] for name in _TIMES)
        is_timed = np.where(np.isnan(ms), ~self._is_measured[records["status"]], (ms >= SHORTEST_MS) & (ms < inf))
        is_timed &= np.isnan(least_ms) | ((least_ms >= SHORTEST_MS) & (least_ms < inf))
        is_named = self._is_problem[records["problem"]] & self._is_kernel[records["kernel"]]
        pairs = zip(records["problem"].tolist(), records["kernel"].tolist(), is_named.tolist(), strict=True)
        is_named &= [
            named and not self._mismatch(self.kernels[kernel], self.problems[problem])
            for problem, kernel, named in pairs
        ]
        good = np.asarray(is_timed & is_named & self._is_run[records["run_id"]])
        for record in records[~good]:
            reason, detail = self._fault(record)
            self.account.doubt(reason, f"line {record['line']}: {detail}")
        return good

    def _fault(self, record: NDArray[Any]) -> tuple[str, str]:
        """Return the reason why a row is unusable and the detail."""
        problem, kernel = self.problems[record["problem"]], self.kernels[record["kernel"]]
        if isinstance(problem, CkhError):
            return BAD_PROBLEM, problem.message
        if isinstance(kernel, CkhError):
            return BAD_KERNEL, kernel.message
        if not self._is_run[record["run_id"]]:
            return UNKNOWN_RUN, f"run {self.texts['run_id'][record['run_id']]!r}"
        if mismatch := self._mismatch(kernel, problem):
            return MISMATCH, mismatch
        row = row_at(self.file, int(record["start"]))
        return BAD_TIME, f"latency_ms is {row.latency_ms}, latency_min_ms is {row.latency_min_ms}, {row.status}"


def _table(records: NDArray[Any], run: RunRecord, judge: _Judge, compiled: dict[str, KernelRecord]) -> pa.Table:
    import pandas as pd
    import pyarrow as pa

    problem_of_row, problems = pd.factorize(records["problem"])
    kernel_of_row, kernels = pd.factorize(records["kernel"])
    status = pa.DictionaryArray.from_arrays(records["status"], judge.texts["status"])
    extra: dict[str, Any] = {
        "latency_min_ms": records["latency_min_ms"],
        "spread": records["spread"],
        "samples": records["samples"],
        "remeasured": records["remeasured"],
        "measured_at": np.where(records["time"] != 0, records["time"], np.nan),
    }
    if records["has_message"].any():
        message = extra["message"] = np.full(len(records), None)
        for place in np.flatnonzero(records["has_message"]).tolist():
            message[place] = row_at(judge.file, int(records["start"][place])).message
    if any(judge.texts["node"]):
        extra["node"] = pa.array([text or None for text in judge.texts["node"]]).take(pa.array(records["node"]))
    if records["launch_ms"].any(where=~np.isnan(records["launch_ms"])):
        extra["launch_ms"] = records["launch_ms"]
        extra["by_graph"] = records["by_graph"].astype(object)
        extra["by_graph"][~(records["launch_ms"] > 0)] = None
    extra |= {name: records[name] for name in CARD_COLUMNS if not np.isnan(records[name]).all()}
    has_earlier = (records["before"] > 0) & (records["latency_ms"] > 0)
    if has_earlier.any():
        times = (records["before"], records["latency_ms"])
        extra |= {name: np.where(has_earlier, ms, np.nan) for name, ms in zip(REPEATED, times, strict=True)}
    rows, sources = pd.factorize(records["source_hash"])
    reports = [compiled.get(judge.texts["source_hash"][number]) for number in sources]
    if any(report.resources for report in compiled.values()):
        taken = [None if report is None else report.resources for report in reports]
        for name in RESOURCE_NAMES:
            numbers = [None if resources is None else getattr(resources, name) for resources in taken]
            extra[name] = pa.array(numbers).take(rows)
    if any(report.calling is not None for report in compiled.values()):
        extra[CALLING] = pa.array([None if report is None else report.calling for report in reports]).take(rows)
    return build_table(
        Pairs(
            [judge.problems[number] for number in problems],
            problem_of_row,
            [judge.kernels[number] for number in kernels],
            [judge.texts["kernel"][number] for number in kernels],
            kernel_of_row,
            run.op,
        ),
        Results(status, records["latency_ms"], extra),
        Origin(run.arch, run.device, {name: run.hardware[name] for name in HARDWARE}, run.run_id),
    )
