"""Reader of the journals of `ckh bench`. Failures are rows too; a later row of a pair replaces an earlier row."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.formats import Reading, ReadOptions
from ckh.data.journal import Damage, KernelRecord, ReferenceRecord, ResultRow, RunRecord, iter_records, row_at
from ckh.data.readers.reader import BadRow, refuse_bad, source_of_file
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import Buckets, StoredRows
from ckh.errors import CkhError, DataError, UsageError
from ckh.ops import operation
from ckh.schema import CALLING, CARD, CARD_COLUMNS, HARDWARE, MEASURED, REPEATED, RESOURCE_NAMES, SHORTEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.data.journal import Located
    from ckh.ops.base import AnyOperation

_BATCH_ROWS = 1 << 15
_BUCKETS = 64
_MOST_KERNELS = 1 << 31
_STRETCH_BYTES = 1 << 24  # of a journal, read into one table
_MOST_STRETCHES = 1 << 32
_PLACE = [("pair", "i8"), ("start", "i8"), ("line", "i8"), ("run", "i4"), ("node", "i4")]
_FINAL = [("first", "i8"), ("start", "i8"), ("line", "i8")]


class JournalRows:
    """Byte offsets of the rows of a journal, and the content of its other records."""

    def __init__(self, records: Iterable[Located], output: Path | None) -> None:
        self.runs: list[RunRecord] = []
        self.looks: dict[str, list[list[float | None]]] = {}
        self.compiled: dict[str, KernelRecord] = {}
        self.damaged = self.count = 0
        self._output = output
        self._problems: dict[str, int] = {}
        self._kernels: dict[str, int] = {}
        self._run_ids: dict[str, int] = {}
        self._places = Buckets(np.dtype(_PLACE), output)
        self._nodes: dict[str, int] = {}
        self._node_of: list[int] = []  # the device that measured each problem last
        batch: list[tuple[int, int, int, int, int]] = []
        for line, start, record in records:
            if isinstance(record, ResultRow):
                batch.append((self._pair(record), start, line, self._number(record.run_id), self._node(record)))
                if len(batch) == _BATCH_ROWS:
                    self._store(batch)
            else:
                self._take(record)
        self._store(batch)

    def final(self) -> Iterator[NDArray[Any]]:
        """Yield the last row of each pair, as byte offset (`start`) and `line`, in arrays of some thousands of one run.

        Rows of a problem that another device measured again are left out (`Journal.final_rows`). A row takes the
        position of the pair's first row within its run.
        """
        final, node_of = Buckets(np.dtype(_FINAL), self._output), np.array(self._node_of, np.int32)
        for all_places in self._places:
            places = all_places[all_places["node"] == node_of[all_places["pair"] // _MOST_KERNELS]]
            if not len(places):
                continue
            ordered = places[np.lexsort((places["start"], places["pair"]))]
            is_new = ordered["pair"][1:] != ordered["pair"][:-1]
            first, last = ordered[np.append(True, is_new)], ordered[np.append(is_new, True)]
            records = np.empty(len(last), dtype=final.kind)
            records["first"], records["start"], records["line"] = first["start"], last["start"], last["line"]
            final.add(records, last["run"].astype(np.int64) * _MOST_STRETCHES + first["start"] // _STRETCH_BYTES)
        for records in final:
            yield records[np.argsort(records["first"])]

    def _take(self, record: object) -> None:
        if isinstance(record, RunRecord):
            self.runs.append(record)
            self._number(record.run_id)
        elif isinstance(record, ReferenceRecord):
            look = [record.time, record.latency_ms, record.clock_mhz, record.temperature_c]
            self.looks.setdefault(record.run_id, []).append(look)
        elif isinstance(record, KernelRecord):
            self.compiled[record.source_hash] = record
        self.damaged += isinstance(record, Damage)

    def _pair(self, row: ResultRow) -> int:
        problem = self._problems.setdefault(row.problem, len(self._problems))
        return problem * _MOST_KERNELS + self._kernels.setdefault(row.kernel, len(self._kernels))

    def _node(self, row: ResultRow) -> int:
        """Number a row's device, and make it the current device of its problem."""
        problem, node = self._problems[row.problem], self._nodes.setdefault(row.node, len(self._nodes))
        self._node_of[problem : problem + 1] = [node]  # appends if the problem is new
        return node

    def _number(self, run_id: str) -> int:
        return self._run_ids.setdefault(run_id, len(self._run_ids))

    def _store(self, batch: list[tuple[int, int, int, int, int]]) -> None:
        """Write the buffered offsets of rows to disk, and clear the buffer."""
        records = np.array(batch, dtype=self._places.kind)
        self._places.add(records, (records["pair"] // _MOST_KERNELS * 31 + records["pair"] % _MOST_KERNELS) % _BUCKETS)
        self.count += len(batch)
        batch.clear()


NAME = "journal"
_EMULATED = "emulated"  # the kind of device
BAD_PROBLEM = "with a problem that does not parse"
BAD_KERNEL = "with a kernel name that does not parse"
BAD_TIME = "with a time that is missing, zero, negative or not a number"
UNKNOWN_RUN = "of an unknown run"
MISMATCH = "with a kernel that is not for the problem"
DAMAGED = "that holds no record: a damaged line"

_BUFFER_BYTES = 1 << 18
_NAMED = 3


class _Parsed:
    """Cache of parsed strings; a parse error is stored in place of the value."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse
        self._of_text: dict[str, Any] = {}

    def __getitem__(self, text: str) -> Any:
        if text not in self._of_text:
            try:
                self._of_text[text] = self._parse(text)
            except CkhError as error:
                self._of_text[text] = error
        return self._of_text[text]


def sniff(head: bytes) -> bool:
    """Return True if the first line is a record of a journal."""
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"kind"' in line and b'"run_id"' in line


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a journal, which itself names the measured device.

    Raises:
        DataError: it is damaged, has no rows, or rows are bad and `skip_bad` is not set.
    """
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            return _read(path, file, options)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error


def _read(path: Path, file: BinaryIO, options: ReadOptions) -> Reading:
    rows = JournalRows(iter_records(file, path, skip_damaged=options.skip_bad), options.output)
    for run in rows.runs:
        _check_run(path, run)
    runs = {run.run_id: run for run in rows.runs}
    judge = _Judge(_operation(rows.runs, path), runs)
    kept, final = StoredRows(options.output), 0
    for places in rows.final():
        final += len(places)
        if good := judge.good([row_at(file, start) for start in places["start"].tolist()], places["line"].tolist()):
            earlier = _earlier(file, places[places["first"] != places["start"]]["first"].tolist())
            kept.add(_table(good, runs[good[0].run_id], judge, rows.compiled, earlier))
    if judge.bad and not options.skip_bad:
        refuse_bad(path, judge.bad, judge.first)
    if not len(kept):
        raise DataError(f"{path}: no valid row" if judge.bad else f"{path} has no results yet", code="empty")
    return Reading(
        kept,
        (source_of_file(path, NAME),),
        runs=tuple(
            {**asdict(run), "flags": list(run.flags), **({"looks": looks} if (looks := rows.looks.get(name)) else {})}
            for name, run in runs.items()
        ),
        bad={**judge.bad, **({DAMAGED: rows.damaged} if rows.damaged else {})},
        superseded=rows.count - final,
    )


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


class _Judge:
    """Validates rows, parsing each distinct problem and kernel once."""

    def __init__(self, op: AnyOperation, runs: dict[str, RunRecord]) -> None:
        self.problems, self.kernels = _Parsed(op.problems.parse), _Parsed(op.kernels.parse)
        self.bad: Counter[str] = Counter()
        self.first: list[BadRow] = []
        self._op = op
        self._runs = runs

    def good(self, rows: Sequence[ResultRow], lines: Sequence[int]) -> list[ResultRow]:
        """Return the usable rows."""
        result = []
        for row, line in zip(rows, lines, strict=True):
            if (fault := self._fault(row)) is None:
                result.append(row)
            else:
                self.bad[fault[0]] += 1
                self.first.append(BadRow(fault[0], line, fault[1]))
        self.first = sorted(self.first, key=lambda item: item.line)[:_NAMED]
        return result

    def _fault(self, row: ResultRow) -> tuple[str, str] | None:
        """Return the reason why a row is unusable and the detail, or None."""
        problem, kernel = self.problems[row.problem], self.kernels[row.kernel]
        if isinstance(problem, CkhError):
            return BAD_PROBLEM, problem.message
        if isinstance(kernel, CkhError):
            return BAD_KERNEL, kernel.message
        if row.run_id not in self._runs:
            return UNKNOWN_RUN, f"run {row.run_id!r}"
        if mismatch := self._op.kernels.mismatch(kernel, problem):
            return MISMATCH, mismatch
        times = [time for time in (row.latency_ms, row.latency_min_ms) if time is not None]
        is_measured = row.status in MEASURED
        if (is_measured and row.latency_ms is None) or not all(
            math.isfinite(time) and time >= SHORTEST_MS for time in times
        ):
            return BAD_TIME, f"latency_ms is {row.latency_ms}, latency_min_ms is {row.latency_min_ms}, {row.status}"
        return None


def _earlier(file: BinaryIO, starts: Sequence[int]) -> dict[tuple[str, str], float]:
    """Times of rows replaced by a later row of the same pair, by problem and kernel."""
    rows = [row_at(file, start) for start in starts]
    return {
        (row.problem, row.kernel): row.latency_ms
        for row in rows
        if row.status in MEASURED and row.latency_ms is not None and row.latency_ms >= SHORTEST_MS
    }


def _table(
    rows: list[ResultRow],
    run: RunRecord,
    judge: _Judge,
    compiled: Mapping[str, KernelRecord],
    earlier: Mapping[tuple[str, str], float],
) -> pa.Table:
    problem_of: dict[str, int] = {}
    kernel_of: dict[str, int] = {}
    problem_of_row = np.array([problem_of.setdefault(row.problem, len(problem_of)) for row in rows])
    kernel_of_row = np.array([kernel_of.setdefault(row.kernel, len(kernel_of)) for row in rows])
    extra = {
        "message": [row.message or None for row in rows],
        "latency_min_ms": np.array([row.latency_min_ms for row in rows], dtype=np.float64),
        "spread": np.array([row.spread for row in rows], dtype=np.float64),
        "samples": [len(row.samples_ns) for row in rows],
        "remeasured": [row.remeasured for row in rows],
        "measured_at": np.array([row.time or None for row in rows], dtype=np.float64),
        "node": [row.node or None for row in rows],
    }
    if any(row.launch_ms for row in rows):
        extra["launch_ms"] = np.array([row.launch_ms for row in rows], dtype=np.float64)
        extra["by_graph"] = [row.by_graph if row.launch_ms else None for row in rows]
    for name, column in zip(CARD, CARD_COLUMNS, strict=True):
        if any(name in row.card for row in rows):
            extra[column] = np.array([row.card.get(name) for row in rows], dtype=np.float64)
    before = [earlier.get((row.problem, row.kernel)) if row.latency_ms else None for row in rows]
    if any(before):
        after = [row.latency_ms if time else None for row, time in zip(rows, before, strict=True)]
        extra |= {name: np.array(times, np.float64) for name, times in zip(REPEATED, (before, after), strict=True)}
    reports = [compiled.get(row.source_hash) for row in rows]
    if any(report.resources for report in compiled.values()):
        taken = [None if report is None else report.resources for report in reports]
        extra |= {name: [None if item is None else getattr(item, name) for item in taken] for name in RESOURCE_NAMES}
    if any(report.calling is not None for report in compiled.values()):
        extra[CALLING] = [None if report is None else report.calling for report in reports]
    return build_table(
        Pairs(
            [judge.problems[text] for text in problem_of],
            problem_of_row,
            [judge.kernels[text] for text in kernel_of],
            list(kernel_of),
            kernel_of_row,
            run.op,
        ),
        Results([str(row.status) for row in rows], np.array([row.latency_ms for row in rows], dtype=np.float64), extra),
        Origin(run.arch, run.device, {name: run.hardware[name] for name in HARDWARE}, run.run_id),
    )
