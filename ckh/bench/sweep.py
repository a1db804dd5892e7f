"""A run of bench: builds the kernels of a plan, measures them problem by problem, and journals every result.

Of each problem, the leaders of the first pass are measured again in rounds, each leader once a round in random order,
so that a drift of the clock hits all alike. Those times replace the first ones.

Where there are several workers, a problem is measured by one of them. Kernels whose code is the same are measured once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ckh.bench.compile import Built, KernelBuilder
from ckh.bench.plan import full_name
from ckh.bench.protocol import Job, Op, Reply
from ckh.bench.rounds import time_in_rounds
from ckh.bench.rows import NS_PER_MS, result_row
from ckh.bench.supervisor import Supervisor, SupervisorOptions
from ckh.data.journal import EndRecord, KernelRecord
from ckh.errors import CkhError
from ckh.progress import progress
from ckh.schema import MEASURED, TRIED_AGAIN, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ckh.bench.device import Device
    from ckh.bench.plan import Plan, Task
    from ckh.bench.stop import Stop
    from ckh.data.journal import JournalWriter, ResultRow, RunRecord
    from ckh.ops.base import Kernel

LEADER_MARGIN = 0.08  # how far behind the fastest a kernel is still measured again
MAX_LEADERS = 12
COMPILE_PHASE = "compile"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """`jobs` compilers at a time; each time limit in seconds; `max_scratch` bytes of scratch memory a lane at most.

    `leaders` is how many kernels of a problem are measured again; None: up to 12 that are within 8 % of the best.
    """

    jobs: int
    compile_timeout_s: float
    supervisors: tuple[SupervisorOptions, ...]
    max_scratch: int | None = None
    leaders: int | None = None


@dataclass(slots=True)
class Totals:
    """What a run did: result rows by status, seconds by phase and in all."""

    statuses: Counter[str] = field(default_factory=Counter)
    remeasured: int = 0
    compile_s: float = 0.0
    wall_s: float = 0.0
    phase_s: dict[str, float] = field(default_factory=dict)
    restarts: int = 0
    workers: int = 1

    def take(self, supervisor: Supervisor) -> None:
        """Add what a supervisor counted."""
        for phase, seconds in supervisor.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += max(supervisor.restarts, 0)


class Results:
    """The last row of every pair, by problem; what is known when a run is resumed."""

    def __init__(self, rows: Iterable[ResultRow] = ()) -> None:
        self._by_problem: dict[str, dict[str, ResultRow]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: ResultRow) -> None:
        """Take in a row, which replaces an earlier one of its pair."""
        self._by_problem.setdefault(row.problem, {})[row.kernel] = row

    def has(self, problem: str, kernel: str) -> bool:
        """Whether there is a row of the pair that says something about it."""
        row = self._by_problem.get(problem, {}).get(kernel)
        return row is not None and row.status not in TRIED_AGAIN

    @property
    def is_any_right(self) -> bool:
        """Whether any pair has a right result, with a time or of a device that has none."""
        rows = (row for rows in self._by_problem.values() for row in rows.values())
        return any(row.status is Status.VERIFIED or row.latency_ms for row in rows)

    def best_ns(self, problem: str) -> float:
        """The least median time of a problem, 0 if none is known."""
        return min((_time_ns(row) for row in self._measured(problem)), default=0.0)

    def leaders(self, problem: str, count: int | None = None) -> list[ResultRow]:
        """The rows to measure again, fastest first; none if that was done or there is nothing to compare.

        Args:
            problem: canonical text.
            count: how many; None: up to `MAX_LEADERS` that are within `LEADER_MARGIN` of the best.
        """
        ranked = sorted(self._measured(problem), key=_time_ns)
        again = sum(row.remeasured for row in self._by_problem.get(problem, {}).values())
        if not ranked or again >= (1 if count is None else min(count, len(ranked))):
            return []
        limit = _time_ns(ranked[0]) * (1 + LEADER_MARGIN) if count is None else float("inf")
        close = [row for row in ranked[: count or MAX_LEADERS] if _time_ns(row) <= limit]
        return close if len(close) > 1 else []

    def _measured(self, problem: str) -> list[ResultRow]:
        rows = self._by_problem.get(problem, {}).values()
        return [row for row in rows if row.status in MEASURED and row.latency_ms]


class _Work:
    """What the workers of a run share: the tasks that no worker has taken yet, and what is needed for them."""

    def __init__(
        self, tasks: Sequence[Task], built: dict[str, Built], results: Results, advance: Callable[[int, str], None]
    ) -> None:
        self._tasks = iter(tasks)
        self._lock = threading.Lock()
        self.built = built
        self.results = results
        self.advance = advance
        self.failures: list[CkhError] = []

    def tasks(self) -> Iterator[Task]:
        """Tasks until there are none left; each is given to one worker only."""
        while True:
            with self._lock:
                task = next(self._tasks, None)
            if task is None:
                return
            yield task

    def stop_with(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """Whether to stop, or a worker has failed."""
        return lambda: bool(self.failures) or stop()


class Sweep:
    """Runs a plan on a device.

    Args:
        device: what the kernels are emitted for and run on.
        run: the record of this run, in the journal already.
        journal: where every result goes.
        options: limits.
        stop: asked all the time whether to end early.
    """

    def __init__(
        self, device: Device, run: RunRecord, journal: JournalWriter, options: SweepOptions, stop: Stop
    ) -> None:
        self._device = device
        self._run = run
        self._journal = journal
        self._options = options
        self._stop = stop
        self._lock = threading.Lock()
        self.totals = Totals()

    def measure(self, plan: Plan, results: Results) -> Totals:
        """Measure what `results` does not hold yet, until it is complete or stopped. Returns what was done.

        Raises:
            DeviceError: the device or compiler cannot be used.
            OutputError: the journal cannot be written; all earlier results are in the journal.
        """
        start = time.monotonic()
        left = plan.without(results.has)
        self.totals.workers = len(self._options.supervisors)
        try:
            built = self._build(left.kernels + self._leading_kernels(plan, left, results))
            with progress("measuring", left.pairs) as advance:
                self._measure_all(_Work(left.tasks, built, results, advance))
        finally:
            self.totals.phase_s[COMPILE_PHASE] = self.totals.compile_s
            self.totals.wall_s = time.monotonic() - start
        phase_s = {phase: round(seconds, 3) for phase, seconds in self.totals.phase_s.items()}
        wall_s = round(self.totals.wall_s, 3)
        self._journal.end_run(EndRecord(self._run.run_id, str(self._stop.reason), wall_s, phase_s))
        return self.totals

    def _leading_kernels(self, plan: Plan, left: Plan, results: Results) -> tuple[Kernel, ...]:
        """Kernels of finished problems whose leaders were not measured again when the last run ended."""
        needed = set()
        for task, rest in zip(plan.tasks, left.tasks, strict=True):
            if not rest.kernels:
                names = {row.kernel for row in results.leaders(task.problem.canonical(), self._options.leaders)}
                needed |= {kernel for kernel in task.kernels if full_name(kernel) in names}
            elif len(rest.kernels) < len(task.kernels):
                needed |= set(task.kernels)  # any of them may turn out to lead
        return tuple(needed)

    def _build(self, kernels: Sequence[Kernel]) -> dict[str, Built]:
        start = time.monotonic()
        builder = KernelBuilder(self._device, self._options.compile_timeout_s)
        distinct = list(dict.fromkeys(kernels))
        with progress("compiling kernels", len(distinct)) as advance:
            built = builder.build(distinct, self._options.jobs, advance, self._stop)
        self.totals.compile_s = time.monotonic() - start
        records = {
            one.source_hash: KernelRecord(self._run.run_id, one.source_hash, one.code_hash, one.binary.resources)
            for one in built.values()
            if one.binary is not None
        }
        if records:
            self._journal.add_kernels(list(records.values()))
        return {full_name(kernel): self._judged(result) for kernel, result in built.items()}

    def _judged(self, built: Built) -> Built:
        """Refuse a kernel that takes more scratch memory than is allowed."""
        limit, binary = self._options.max_scratch, built.binary
        if limit is None or binary is None or binary.resources is None or binary.resources.scratch_bytes <= limit:
            return built
        message = f"it takes {binary.resources.scratch_bytes} bytes of scratch memory a lane, {limit} are allowed"
        return replace(built, status=Status.INVALID, message=message)

    def _measure_all(self, work: _Work) -> None:
        """Measure the tasks, each by the next worker that is free."""
        from joblib import Parallel, delayed

        options = self._options.supervisors
        if len(options) == 1:
            self._serve(options[0], work)
            return
        Parallel(n_jobs=len(options), backend="threading")(delayed(self._serve)(one, work) for one in options)
        if work.failures:
            raise work.failures[0]

    def _serve(self, options: SupervisorOptions, work: _Work) -> None:
        """Measure tasks with one worker until there are none left; a failure ends the others' work too."""
        should_stop = work.stop_with(self._stop)
        with Supervisor(self._device, options, should_stop) as supervisor:
            try:
                for task in work.tasks():
                    if should_stop():
                        break
                    self._measure_task(supervisor, task, work)
            except CkhError as error:
                if len(self._options.supervisors) == 1:
                    raise
                work.failures.append(error)
            finally:
                with self._lock:
                    self.totals.take(supervisor)

    def _measure_task(self, supervisor: Supervisor, task: Task, work: _Work) -> None:
        canonical, results, built = task.problem.canonical(), work.results, work.built
        names = [full_name(kernel) for kernel in task.kernels]
        if any(name not in built for name in names):
            return  # the build was stopped
        jobs: list[Job] = []
        twins: dict[str, list[str]] = {}
        for number, name in enumerate(names):
            made = built[name]
            if made.status is not Status.OK:
                self._add(results, self._row(canonical, name, Reply(number, made.status, made.message), made))
                work.advance(1, canonical)
            elif made.code_hash in twins:
                twins[made.code_hash].append(name)
            else:
                twins[made.code_hash] = []
                jobs.append(Job(Op.MEASURE, number, library=made.library, samples=self._run.samples))
        setup = Job(Op.PROBLEM, -1, problem=canonical, best_ns=results.best_ns(canonical))
        for job, reply in supervisor.run(setup, jobs):
            first = names[job.id]
            row = self._row(canonical, first, reply, built[first])
            same = twins[built[first].code_hash]
            self._add(results, row, *(self._twin_row(row, name, built[name]) for name in same))
            work.advance(1 + len(same), canonical)
        if all(results.has(canonical, name) for name in names) and not self._stop():
            self._measure_leaders(supervisor, canonical, built, results)

    def _measure_leaders(
        self, supervisor: Supervisor, canonical: str, built: dict[str, Built], results: Results
    ) -> None:
        leaders = results.leaders(canonical, self._options.leaders)
        if not leaders:
            return
        setup = Job(Op.PROBLEM, -1, problem=canonical, best_ns=results.best_ns(canonical))
        kernels = [(built[row.kernel].library, row.loops) for row in leaders]
        seed = f"{self._run.seed} leaders {canonical}"
        replies = time_in_rounds(supervisor, setup, kernels, self._run.samples, seed)
        if replies is None:
            return  # stopped: the next run does it again
        rows = [
            replace(self._row(canonical, row.kernel, reply, built[row.kernel]), remeasured=True)
            for row, reply in zip(leaders, replies, strict=True)
        ]
        # In one piece, so that a problem's leaders are never compared with times of different rounds.
        with self._lock:
            self._journal.add(*rows)
            for row in rows:
                results.add(row)
            self.totals.remeasured += len(rows)

    def _add(self, results: Results, *rows: ResultRow) -> None:
        with self._lock:
            self._journal.add(*rows)
            for row in rows:
                results.add(row)
                self.totals.statuses[str(row.status)] += 1

    def _twin_row(self, row: ResultRow, kernel: str, built: Built) -> ResultRow:
        """The row of a kernel whose code is that of one just measured."""
        message = f"the same code as {row.kernel}, measured once" + (f": {row.message}" if row.message else "")
        return replace(row, kernel=kernel, source_hash=built.source_hash, message=message)

    def _row(self, canonical: str, kernel: str, reply: Reply, built: Built) -> ResultRow:
        return result_row(self._run.run_id, canonical, kernel, reply, built)


def _time_ns(row: ResultRow) -> float:
    return (row.latency_ms or 0.0) * NS_PER_MS
