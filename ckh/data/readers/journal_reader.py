"""Reader of the journals of `ckh bench`. Failures are rows too; a later row of a pair replaces an earlier row.

A journal is read twice: first all lines, of which byte offsets are kept on disk, then the last row of each pair.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from functools import cache
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import astuple

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

NAME = "journal"
BAD_PROBLEM = "with a problem that does not parse"
BAD_KERNEL = "with a kernel name that does not parse"
BAD_TIME = "with a time that is missing, zero, negative or not a number"
UNKNOWN_RUN = "of an unknown run"
MISMATCH = "with a kernel that is not for the problem"
DAMAGED = "that holds no record: a damaged line"

_EMULATED = "emulated"  # the kind of device
_NAMED = 3
_BUFFER_BYTES = 1 << 18
_BATCH_ROWS = 1 << 15
_BUCKETS = 64
_MOST_KERNELS = 1 << 31
_STRETCH_BYTES = 1 << 24  # of a journal, read into one table
_MOST_STRETCHES = 1 << 32
_PLACE = [("pair", "i8"), ("start", "i8"), ("line", "i8"), ("run", "i4"), ("node", "i4")]
_FINAL = [("first", "i8"), ("start", "i8"), ("line", "i8")]


def sniff(head: bytes) -> bool:
    """Return True if the first line is a record of a journal."""
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"kind"' in line and b'"run_id"' in line


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a journal, which itself names the measured device."""
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            return _read(path, file, options)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error


def _read(path: Path, file: BinaryIO, options: ReadOptions) -> Reading:
    rows = _JournalRows(iter_records(file, path, skip_damaged=options.skip_bad), options.output)
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


class _JournalRows:
    """Byte offsets of the rows of a journal, and the content of its other records."""

    def __init__(self, records: Iterable[Located], output: Path | None) -> None:
        self.runs: list[RunRecord] = []
        self.looks: dict[str, list[list[float | None]]] = {}  # checks of the machine, by run
        self.compiled: dict[str, KernelRecord] = {}  # by `source_hash`; the last record wins
        self.damaged = self.count = 0
        self._output = output
        self._places = Buckets(np.dtype(_PLACE), output)
        self._node_of: dict[int, int] = {}  # problem -> the device that measured it last
        # Numbers of texts in order of appearance.
        problems, kernels, runs, nodes = (defaultdict[str, int](count().__next__) for _ in range(4))
        batch: list[tuple[int, int, int, int, int]] = []
        for line, start, record in records:
            if isinstance(record, ResultRow):
                problem, node = problems[record.problem], nodes[record.node]
                self._node_of[problem] = node
                pair = problem * _MOST_KERNELS + kernels[record.kernel]
                batch.append((pair, start, line, runs[record.run_id], node))
                if len(batch) == _BATCH_ROWS:
                    self._store(batch)
            elif isinstance(record, RunRecord):
                self.runs.append(record)
                runs[record.run_id]
            elif isinstance(record, ReferenceRecord):
                look = [record.time, record.latency_ms, record.clock_mhz, record.temperature_c]
                self.looks.setdefault(record.run_id, []).append(look)
            elif isinstance(record, KernelRecord):
                self.compiled[record.source_hash] = record
            else:
                self.damaged += isinstance(record, Damage)
        self._store(batch)

    def _store(self, batch: list[tuple[int, int, int, int, int]]) -> None:
        """Write the buffered offsets of rows to disk, and clear the buffer."""
        records = np.array(batch, dtype=self._places.kind)
        self._places.add(records, (records["pair"] // _MOST_KERNELS * 31 + records["pair"] % _MOST_KERNELS) % _BUCKETS)
        self.count += len(batch)
        batch.clear()

    def final(self) -> Iterator[NDArray[Any]]:
        """Yield the last row of each pair, as byte offset (`start`) and `line`, in arrays of some thousands of one run.

        Rows of a problem that another device measured again are left out (`Journal.final_rows`). A row takes the
        position of the pair's first row within its run.
        """
        final = Buckets(np.dtype(_FINAL), self._output)
        node_of = np.array([self._node_of[problem] for problem in range(len(self._node_of))], np.int32)
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


def _cached(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser that parses each text once, and returns an error instead of raising it."""

    @cache
    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except CkhError as error:
            return error

    return parsed


class _Judge:
    """Validates rows, parsing each distinct problem and kernel once."""

    def __init__(self, op: AnyOperation, runs: dict[str, RunRecord]) -> None:
        self.problem, self.kernel = _cached(op.problems.parse), _cached(op.kernels.parse)
        self.bad: Counter[str] = Counter()
        self.first: list[BadRow] = []  # the first few bad rows by line
        self._mismatch, self._runs = op.kernels.mismatch, runs

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
        problem, kernel = self.problem(row.problem), self.kernel(row.kernel)
        ms, least_ms = row.latency_ms, row.latency_min_ms
        if isinstance(problem, CkhError):
            return BAD_PROBLEM, problem.message
        if isinstance(kernel, CkhError):
            return BAD_KERNEL, kernel.message
        if row.run_id not in self._runs:
            return UNKNOWN_RUN, f"run {row.run_id!r}"
        if mismatch := self._mismatch(kernel, problem):
            return MISMATCH, mismatch
        is_bad = row.status in MEASURED if ms is None else not SHORTEST_MS <= ms < inf
        if is_bad or (least_ms is not None and not SHORTEST_MS <= least_ms < inf):
            return BAD_TIME, f"latency_ms is {ms}, latency_min_ms is {least_ms}, {row.status}"
        return None


def _earlier(file: BinaryIO, starts: Sequence[int]) -> dict[tuple[str, str], float]:
    """Times of rows replaced by a later row of the same pair, by problem and kernel."""
    rows = [row_at(file, start) for start in starts]
    return {
        (row.problem, row.kernel): row.latency_ms
        for row in rows
        if row.status in MEASURED and row.latency_ms is not None and row.latency_ms >= SHORTEST_MS
    }


def _floats(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array(tuple(values), dtype=np.float64)


def _table(
    rows: list[ResultRow],
    run: RunRecord,
    judge: _Judge,
    compiled: Mapping[str, KernelRecord],
    earlier: Mapping[tuple[str, str], float],
) -> pa.Table:
    values = dict(zip(ResultRow.__struct_fields__, zip(*map(astuple, rows), strict=True), strict=True))
    problems, kernels = (defaultdict[str, int](count().__next__) for _ in range(2))
    problem_of_row = np.array([problems[text] for text in values["problem"]])
    kernel_of_row = np.array([kernels[text] for text in values["kernel"]])
    extra: dict[str, Any] = {
        "message": [text or None for text in values["message"]],
        "latency_min_ms": _floats(values["latency_min_ms"]),
        "spread": _floats(values["spread"]),
        "samples": list(map(len, values["samples_ns"])),
        "remeasured": list(values["remeasured"]),
        "measured_at": _floats(time or None for time in values["time"]),
        "node": [node or None for node in values["node"]],
    }
    if any(values["launch_ms"]):
        extra["launch_ms"] = _floats(values["launch_ms"])
        extra["by_graph"] = [row.by_graph if row.launch_ms else None for row in rows]
    if any(values["card"]):
        for name, column in zip(CARD, CARD_COLUMNS, strict=True):
            if any(name in card for card in values["card"]):
                extra[column] = _floats(card.get(name) for card in values["card"])
    if earlier:
        before = [earlier.get((row.problem, row.kernel)) if row.latency_ms else None for row in rows]
        after = [row.latency_ms if time else None for row, time in zip(rows, before, strict=True)]
        extra |= dict(zip(REPEATED, (_floats(before), _floats(after)), strict=True)) if any(before) else {}
    reports = [compiled.get(source) for source in values["source_hash"]]
    if any(report.resources for report in compiled.values()):
        taken = [None if report is None else report.resources for report in reports]
        extra |= {name: [None if item is None else getattr(item, name) for item in taken] for name in RESOURCE_NAMES}
    if any(report.calling is not None for report in compiled.values()):
        extra[CALLING] = [None if report is None else report.calling for report in reports]
    return build_table(
        Pairs(
            list(map(judge.problem, problems)),
            problem_of_row,
            list(map(judge.kernel, kernels)),
            list(kernels),
            kernel_of_row,
            run.op,
        ),
        Results(list(map(str, values["status"])), _floats(values["latency_ms"]), extra),
        Origin(run.arch, run.device, {name: run.hardware[name] for name in HARDWARE}, run.run_id),
    )
