"""Measured pairs of the journal that `--resume` continues: the last row of each, its times, and the leaders.

A journal may be larger than memory. Of its rows only the data needed by a resumed run is kept (`PairResults`), some
bytes each; runs, plans and reference measurements are kept in full. Plans are stored too: a resumed run measures the
pairs it began with, even if input files have changed.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from statistics import stdev
from typing import TYPE_CHECKING, NamedTuple

from ckh.bench.planning.plan import Plan, Task, full_name
from ckh.bench.supervision.runner import NS_PER_MS
from ckh.data.journal import (
    EndRecord,
    PlanRecord,
    ReferenceRecord,
    ResultRow,
    RunRecord,
    TaskRecord,
    journal_path,
    records_of,
)
from ckh.errors import CkhError, DataError
from ckh.schema import MEASURED, TRIED_AGAIN, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.data.journal_records import Record
    from ckh.ops.base import AnyOperation, Kernel


LEADER_MARGIN = 0.08  # maximum distance to the fastest kernel for remeasuring
MAX_LEADERS = 12
VISITS = 2  # of a problem, for the gain over the kernel in use
_MAX_COUNT = 255
_UNKNOWN_SPREAD, _LEAST_SPREAD = 0.2, 0.01  # of a problem's times: before there are two, and if they are equal
_STATUSES = tuple(Status)
_NUMBERS = {status: number for number, status in enumerate(_STATUSES)}
_NO_MEMORY = "out of memory"  # in messages of earlier versions, whose status for it was that of a failed launch


class Leader(NamedTuple):
    """A kernel to remeasure: its name, median time, and runs per sample."""

    kernel: str
    ms: float
    loops: int


class _ProblemRows:
    """Last rows of a problem by one device, in the order of kernel indices: 22 bytes each.

    `again` counts the rounds in which a kernel was remeasured since it was measured.

    A journal has millions of rows, so only the needed fields are kept.
    """

    __slots__ = ("again", "kernels", "loops", "ms", "node", "statuses")

    def __init__(self, node: str) -> None:
        self.node = node
        self.kernels, self.ms, self.loops = array("I"), array("d"), array("q")
        self.statuses, self.again = bytearray(), bytearray()

    def put(self, kernel: int, row: ResultRow) -> None:
        """Store the row of a kernel, given its index."""
        at, ms, status = bisect_left(self.kernels, kernel), row.latency_ms or 0.0, _NUMBERS[row.status]
        if row.status is Status.LAUNCH_ERROR and _NO_MEMORY in row.message:
            status = _NUMBERS[Status.OUT_OF_MEMORY]
        if at == len(self.kernels) or self.kernels[at] != kernel:
            self.kernels.insert(at, kernel)
            self.ms.insert(at, ms)
            self.loops.insert(at, row.loops)
            self.statuses.insert(at, status)
            self.again.insert(at, row.remeasured)
        else:
            self.ms[at], self.loops[at] = ms, row.loops
            self.statuses[at], self.again[at] = status, min(_MAX_COUNT, self.again[at] + 1) if row.remeasured else 0

    def status(self, kernel: int) -> Status | None:
        """Status of a kernel, given its index; None without a result."""
        at = bisect_left(self.kernels, kernel)
        return _STATUSES[self.statuses[at]] if at < len(self.kernels) and self.kernels[at] == kernel else None

    def measured(self) -> Iterator[tuple[int, float, int]]:
        """Index, time and runs per sample of each kernel that has a time."""
        for kernel, ms, loops, status in zip(self.kernels, self.ms, self.loops, self.statuses, strict=True):
            if ms and _STATUSES[status] in MEASURED:
                yield kernel, ms, loops


class PairResults:
    """Last row of every pair, by problem; the state of a resumed run."""

    def __init__(self, rows: Iterable[ResultRow] = ()) -> None:
        self._by_problem: dict[str, _ProblemRows] = {}
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        for row in rows:
            self.add(row)

    @classmethod
    def of_journal(cls, rows: Iterable[ResultRow]) -> PairResults:
        """Final rows of a journal, the same as those of `Journal.final_rows`."""
        results, by_device, device = cls(), dict[tuple[str, str], _ProblemRows](), dict[str, str]()
        for row in rows:
            problem_rows = by_device.get((row.problem, row.node))
            if problem_rows is None:
                problem_rows = by_device[row.problem, row.node] = _ProblemRows(row.node)
            problem_rows.put(results._number(row.kernel), row)
            device[row.problem] = row.node
        results._by_problem = {problem: by_device[problem, node] for problem, node in device.items()}
        return results

    def _number(self, kernel: str) -> int:
        if kernel not in self._numbers:
            self._numbers[kernel] = len(self._names)
            self._names.append(kernel)
        return self._numbers[kernel]

    def add(self, row: ResultRow) -> None:
        """Add a row, which replaces an earlier one of its pair, and those of its problem by another device."""
        if self.device(row.problem) != row.node:
            self._by_problem[row.problem] = _ProblemRows(row.node)
        self._by_problem[row.problem].put(self._number(row.kernel), row)

    def device(self, problem: str) -> str | None:
        """The device that measured a problem; None: it was not measured."""
        return self._by_problem[problem].node if problem in self._by_problem else None

    def set_aside(self, problem: str) -> None:
        """Discard the results of a problem that is to be measured again."""
        self._by_problem.pop(problem, None)

    def has(self, problem: str, kernel: str) -> bool:
        """True if there is a conclusive row of the pair."""
        if problem not in self._by_problem or kernel not in self._numbers:
            return False
        status = self._by_problem[problem].status(self._numbers[kernel])
        return status is not None and status not in TRIED_AGAIN

    def by_problem(self) -> Iterator[tuple[str, str, list[str]]]:
        """For each problem, the device that measured it, and its kernels with a conclusive row."""
        for problem, rows in self._by_problem.items():
            if names := [name for name in map(self._names.__getitem__, rows.kernels) if self.has(problem, name)]:
                yield problem, rows.node, names

    def times(self, problem: str) -> dict[str, float]:
        """The times of a problem's kernels in ms, by name."""
        return {leader.kernel: leader.ms for leader in self._measured(problem)}

    @property
    def is_any_right(self) -> bool:
        """True if any pair has a right result, with or without a time."""
        verified = _NUMBERS[Status.VERIFIED]
        return any(any(rows.ms) or verified in rows.statuses for rows in self._by_problem.values())

    def best_so_far(self, tasks: Iterable[Task], counts: Mapping[str, int]) -> tuple[int, float, float]:
        """Number of problems with a time, and the total time in ms with their fastest and with their first kernels."""
        best_ms, first_ms, timed = 0.0, 0.0, 0
        for task in tasks:
            problem = task.problem.canonical()
            times = self.times(problem)
            timed += bool(times)
            if first := times.get(full_name(task.kernels[0])):
                first_ms += counts.get(problem, 1) * first
                best_ms += counts.get(problem, 1) * min(times.values())
        return timed, best_ms, first_ms

    def best_ns(self, problem: str) -> float:
        """Minimum of a problem's median times, 0 if unknown."""
        return min((leader.ms * NS_PER_MS for leader in self._measured(problem)), default=0.0)

    def leaders(
        self, problem: str, baseline: str | None = None, new: Collection[str] = (), visits: int = 1
    ) -> list[Leader]:
        """Kernels to remeasure together, fastest first; none if that was done or there is nothing to compare.

        It was done if the fastest and the baseline were remeasured, and the new ones among the leaders: in so many
        visits, if the baseline is not the fastest.
        """
        ranked = sorted(self._measured(problem), key=lambda leader: leader.ms)
        if not ranked:
            return []
        limit = ranked[0].ms * (1 + LEADER_MARGIN)
        close = [leader for leader in ranked[:MAX_LEADERS] if leader.ms <= limit]
        close += [leader for leader in ranked if leader.kernel == baseline and leader not in close]
        names = {leader.kernel for leader in close}
        rows, least = self._by_problem[problem], visits if baseline in names - {ranked[0].kernel} else 1
        again = {self._names[kernel] for kernel, count in zip(rows.kernels, rows.again, strict=True) if count >= least}
        left = {ranked[0].kernel, baseline, *new} & names - again
        return close if len(close) > 1 and left else []

    def _measured(self, problem: str) -> list[Leader]:
        if problem not in self._by_problem:
            return []
        return [Leader(self._names[kernel], ms, loops) for kernel, ms, loops in self._by_problem[problem].measured()]


def by_worth(
    tasks: Sequence[tuple[str, Sequence[Kernel]]], results: PairResults, counts: Mapping[str, int]
) -> Iterator[Kernel]:
    """The unmeasured kernels of problems, each time the next one of the problem with the most time x uncertainty.

    The time is of all executions, by the best so far. The uncertainty is the standard deviation of the logarithms of
    the times, divided by the number of kernels: what the best of n choices lacks falls about as 1/n (held out: 1.3 % of
    one, 0.3 % of three). A problem without a time is as worthy as the first of the others.
    """
    kernels = [iter(own) for _, own in tasks]
    worths, tried = dict[int, float](), list[int]()
    for number, (problem, _) in enumerate(tasks):
        times = results.times(problem)
        logs = [math.log(ms) for ms in times.values()]
        spread = max(stdev(logs), _LEAST_SPREAD) if len(logs) > 1 else _UNKNOWN_SPREAD
        tried.append(max(len(logs), 1))
        if times:
            worths[number] = counts.get(problem, 1) * min(times.values()) * spread
    unknown = max(worths.values(), default=1.0)
    queue = [(-worths.get(number, unknown) / tried[number], number) for number in range(len(kernels))]
    heapify(queue)
    while queue:
        _, number = queue[0]
        if (kernel := next(kernels[number], None)) is None:
            heappop(queue)
            continue
        yield kernel
        tried[number] += 1
        heapreplace(queue, (-worths.get(number, unknown) / tried[number], number))


@dataclass(frozen=True, slots=True)
class History:
    """The runs of a journal, in the order of writing."""

    path: Path
    runs: tuple[RunRecord, ...]
    ends: tuple[EndRecord, ...]
    plans: tuple[PlanRecord, ...]
    tasks: tuple[TaskRecord, ...]
    plan_of_task: tuple[int, ...]
    """Index of each task's plan."""
    references: tuple[ReferenceRecord, ...]
    results: PairResults
    measured: Mapping[tuple[str, str], int]
    """Number of rows by run and problem, excluding remeasurements."""


def read_history(folder: Path) -> History:
    """Read a journal, given its file or folder."""
    path = journal_path(folder)
    records: dict[type[Record], list[Record]] = {
        kind: [] for kind in (RunRecord, EndRecord, PlanRecord, TaskRecord, ReferenceRecord)
    }
    measured: Counter[tuple[str, str]] = Counter()
    numbers: dict[int, int] = {}  # kernels in tasks; each is stored once
    plan_of_task: list[int] = []

    def rows() -> Iterator[ResultRow]:
        for record in records_of(path):
            if isinstance(record, ResultRow):
                measured[record.run_id, record.problem] += not record.remeasured
                yield record
            elif isinstance(record, TaskRecord):
                kernels = tuple(numbers.setdefault(number, number) for number in record.kernels)
                records[TaskRecord].append(replace(record, kernels=kernels))
                plan_of_task.append(len(records[PlanRecord]) - 1)
            elif type(record) in records:
                records[type(record)].append(record)

    results = PairResults.of_journal(rows())
    return History(
        path,
        tuple(records[RunRecord]),  # type: ignore[arg-type]
        tuple(records[EndRecord]),  # type: ignore[arg-type]
        tuple(records[PlanRecord]),  # type: ignore[arg-type]
        tuple(records[TaskRecord]),  # type: ignore[arg-type]
        tuple(plan_of_task),
        tuple(records[ReferenceRecord]),  # type: ignore[arg-type]
        results,
        measured,
    )


def plan_records(run_id: str, plan: Plan, *, is_new: bool = False) -> Iterator[PlanRecord | TaskRecord]:
    """Records of a run's first or new plan: kernels by name, then each problem with the indices of its kernels."""
    kernels = plan.kernels
    number = {kernel: i for i, kernel in enumerate(kernels)}
    yield PlanRecord(run_id, tuple(map(full_name, kernels)), plan.pairs if is_new else None)
    for task in plan.tasks:
        yield TaskRecord(run_id, task.problem.canonical(), tuple(number[kernel] for kernel in task.kernels))


def stored_plan(history: History, op: AnyOperation) -> Plan | None:
    """The last complete plan; None if there is none, as in journals of earlier versions."""
    pairs = {run.run_id: run.pairs for run in history.runs}
    for number, plan in reversed(list(enumerate(history.plans))):
        tasks = [task for task, of in zip(history.tasks, history.plan_of_task, strict=True) if of == number]
        # A plan that was killed while it was written is incomplete.
        if sum(len(task.kernels) for task in tasks) == (plan.pairs or pairs.get(plan.run_id)):
            return _plan_of(history.path, plan, tasks, op)
    return None


def _plan_of(path: Path, record: PlanRecord, tasks: Sequence[TaskRecord], op: AnyOperation) -> Plan:
    if not all(0 <= number < len(record.kernels) for task in tasks for number in task.kernels):
        raise DataError(f"{path}: the plan of run {record.run_id} is damaged", code="damaged")
    try:
        kernels = [op.kernels.parse(name) for name in record.kernels]
        return Plan(
            tuple(Task(op.problems.parse(task.problem), tuple(kernels[i] for i in task.kernels)) for task in tasks), {}
        )
    except CkhError as error:
        raise DataError(
            f"{path}: the plan of run {record.run_id}: {error.message}", error.hint, code=error.code
        ) from error
