"""A run of bench: build the kernels of a plan, measure them problem by problem, and journal every result.

The fastest kernels of each problem, and the one in use today if it is known, are remeasured in rounds of random order,
so that clock drift affects all alike; these times replace the first ones. If the one in use is slower, later once more.

Where many kernels are to compile, one for each compiler is measured on a few problems before the others are compiled.
With a budget, kernels are built in parts, each measured when it is built: the first two of every problem, then as many
as compile in half of the remaining time by the rate of this run. So a budget too short for the plan gives times, too.
Whenever kernels are measured, `--plan auto` may plan the rest again by the times of this run.

With several devices each problem is measured on one of them. A partly measured problem of an earlier run continues on
its device, or is measured again if that is missing. Kernels with identical code are measured once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from msgspec import structs

from ckh.bench.planning.pace import Work
from ckh.bench.planning.plan import full_name
from ckh.bench.planning.results import VISITS, PairResults, plan_records
from ckh.bench.supervision.driver import COMPILE_PHASE, BegunTasks, time_in_rounds, uses_of
from ckh.bench.supervision.reference_watch import (
    AGAIN_SHARE,
    LEAST_PAIRS,
    Alike,
    Reference,
    ReferenceWatch,
    by_computing,
)
from ckh.bench.supervision.runner import measure, on_problem, result_row
from ckh.bench.supervision.supervisor import MAX_PASSES, Looks, with_anchor
from ckh.data.journal import EndRecord, KernelRecord, ReferenceRecord
from ckh.errors import DeviceError
from ckh.schema import CALLING, MEASURED, RIGHT, TRIED_AGAIN, Status
from ckh.text.durations import format_duration
from ckh.text.log import note
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.planning.pace import Visits
    from ckh.bench.planning.plan import Plan, Task
    from ckh.bench.planning.results import Leader
    from ckh.bench.supervision.driver import Driver
    from ckh.bench.supervision.limits import Stop
    from ckh.bench.supervision.protocol import Job, Reply
    from ckh.bench.supervision.runner import JobRunner
    from ckh.data.journal import JournalWriter, ResultRow, RunRecord
    from ckh.ops.base import Kernel


_FIRST = 2  # kernels of each problem that are measured first with a budget
_COMPILING = 0.5  # share of the remaining budget for the next kernels
_EARLY_PROBLEMS = 4  # which are measured first, without a budget
_MANY = 8  # kernels to compile for each compiler
MOST_IMPOSSIBLE = 5  # kernels in a row whose times cannot be, before the run stops


def within_scratch(built: Built, limit: int | None) -> Built:
    """Refuse a kernel that needs more scratch memory than a limit, if there is one."""
    resources = None if built.binary is None else built.binary.resources
    if limit is None or resources is None or resources.scratch_bytes <= limit:
        return built
    message = f"it uses {resources.scratch_bytes} bytes of scratch memory per lane; the limit is {limit}"
    return replace(built, status=Status.INVALID, message=message)


@dataclass(slots=True)
class Totals:
    """Counts of a run, and seconds by phase and in total."""

    statuses: Counter[str] = field(default_factory=Counter)
    first_failures: dict[str, str] = field(default_factory=dict)
    remeasured: int = 0
    drifted: int = 0
    suspects_left: int = 0
    shared: int = 0
    references: list[ReferenceRecord] = field(default_factory=list)
    compile_s: float = 0.0
    wall_s: float = 0.0
    phase_s: dict[str, float] = field(default_factory=dict)
    restarts: int = 0
    workers: int = 1
    uses: dict[str, dict[str, float]] = field(default_factory=dict)
    """Seconds of each worker by what it did or waited for, by name."""


@dataclass(slots=True)
class _Work:
    """State shared by the tasks of a run: kernels by name, results of pairs, the progress bar."""

    built: dict[str, Built]
    results: PairResults
    shown: ExitStack
    advance: Callable[[int, str], None] = lambda _steps, _text: None
    interrupted: set[tuple[str, str]] = field(default_factory=set)
    """Pairs whose kernel's compiler was interrupted in this run; the next run tries them again."""


class Sweep:
    """Executes a plan."""

    def __init__(
        self,
        driver: Driver,
        run: RunRecord,
        journal: JournalWriter,
        stop: Stop,
        looks: Sequence[ReferenceRecord] = (),
        plan_again: Callable[[Work, float], Plan | None] | None = None,
    ) -> None:
        self._driver = driver
        self._run = run
        self._journal = journal
        self._stop = stop
        self._looks = looks
        self._plan_again = plan_again  # of the work done and the seconds left
        self._visits: Visits = []
        self._whole: dict[str, Task] = {}  # the plan's task of each problem
        self._lock = threading.Lock()
        self._compiled = 0  # kernels compiled by this run
        self._impossible: Counter[str] = Counter()  # kernels in a row without a possible time, by device
        self.totals = Totals(workers=len(driver.configs))

    def measure(self, plan: Plan, results: PairResults) -> Totals:
        """Measure pairs missing in `results`, until complete or stopped."""
        left = self._unfinished(plan, results)
        kernels = left.kernels + self._leading_kernels(left, results)
        jobs, start, has_budget = self._driver.jobs, time.monotonic(), self._stop.left_s is not None
        if not has_budget and (len(kernels) <= _MANY * jobs or len(self._driver.missing(kernels)) <= _MANY * jobs):
            return self._measured(left, kernels + self._compared(plan), results, partial(self._serve, left.tasks))
        first = self._first_kernels(left)

        def serve(work: _Work, watch: ReferenceWatch | None) -> None:
            nonlocal left, kernels, first
            while not self._stop():
                unbuilt = [kernel for kernel in kernels if full_name(kernel) not in work.built]
                if not unbuilt:
                    self._serve(left.tasks, work, watch)
                    return
                tasks = [
                    replace(task, kernels=tuple(kernel for kernel in task.kernels if full_name(kernel) in work.built))
                    for task in left.tasks[: None if has_budget else _EARLY_PROBLEMS]
                ]
                self._serve(tasks, work, watch)
                if (again := self._planned_again()) is not None:
                    left = self._unfinished(again, results)
                    kernels, first = left.kernels + self._leading_kernels(left, results), self._first_kernels(left)
                    unbuilt = [kernel for kernel in kernels if full_name(kernel) not in work.built]
                    self._show(left, work)
                if has_budget:
                    soon = [kernel for kernel in first if full_name(kernel) not in work.built]
                    unbuilt = self._next_kernels(soon or unbuilt)
                else:
                    after = format_duration(time.monotonic() - start)
                    done = sum(self.totals.statuses[str(status)] for status in RIGHT)
                    note(f"first {done} pairs measured after {after}; {len(unbuilt)} kernels to compile for the others")
                work.built.update(self._build(unbuilt))

        return self._measured(left, (*first[:jobs], *self._compared(plan)), results, serve)

    def _planned_again(self) -> Plan | None:
        """A new plan for the rest of the budget, which the journal has from now on; None: the plan stays."""
        if self._plan_again is None or self._stop.left_s is None or self._stop():
            return None
        done = Work(self._visits, self._driver.phase_s, self._driver.jobs, len(self._driver.configs))
        plan = self._plan_again(done, self._stop.left_s)
        if plan is not None:
            self._journal.add_plan(plan_records(self._run.run_id, plan, is_new=True))
        return plan

    @staticmethod
    def _show(left: Plan, work: _Work) -> None:
        """Begin a progress bar."""
        work.shown.close()
        work.advance = work.shown.enter_context(progress("measuring", left.pairs))

    def _first_kernels(self, left: Plan) -> tuple[Kernel, ...]:
        """The first two kernels of each problem, today's and the first choice; first one for the drift monitor."""
        tasks = [(task, self._whole[task.problem.canonical()].kernels[:_FIRST]) for task in left.tasks]
        computing = by_computing([task for task in left.tasks if task.kernels], self._driver.configs[0].kind)[:1]
        first = (kernel for task, kernels in tasks for kernel in kernels if kernel in task.kernels)
        return tuple(dict.fromkeys((*(task.kernels[0] for task in computing), *first)))

    def _next_kernels(self, unbuilt: Sequence[Kernel]) -> list[Kernel]:
        """Select the kernels that compile in half of the remaining time, at the rate of this run."""
        count, missing = self._driver.jobs, self._driver.missing(unbuilt)
        if self._compiled:
            rate_s = self._driver.phase_s[COMPILE_PHASE] / self._compiled
            count = max(count, int(_COMPILING * (self._stop.left_s or 0.0) / rate_s))
        later = set(missing[count:])
        return [kernel for kernel in unbuilt if kernel not in later]

    def _serve(self, tasks: Sequence[Task], work: _Work, watch: ReferenceWatch | None) -> None:
        """Measure tasks on all devices."""
        if watch is not None:
            watch.expect(len(tasks))

        def measure_watched(worker: JobRunner, task: Task) -> None:
            if watch is not None:
                watch.before(worker, task)
            self._measure_task(worker, task, work)
            if watch is not None:
                watch.after(worker)

        self._driver.serve(self._tasks(tasks, work.results).next, measure_watched)

    def _measured(
        self,
        left: Plan,
        kernels: Sequence[Kernel],
        results: PairResults,
        serve: Callable[[_Work, ReferenceWatch | None], None],
    ) -> Totals:
        """Build kernels, have tasks measured by `serve`, and write the end of the run."""
        start = time.monotonic()
        try:
            built = self._build(kernels)
            self._require_alike(left, built)
            with ExitStack() as shown:
                work, watch = _Work(built, results, shown), self._watch(left, built)
                self._show(left, work)
                started = time.monotonic() - self._driver.phase_s[COMPILE_PHASE]
                serve(work, watch)
                if again := [task for name, task in self._whole.items() if self._leaders(name, results)]:
                    self._serve([replace(task, kernels=()) for task in again], work, watch)
            if watch is not None:
                measuring_s = time.monotonic() - self._driver.phase_s[COMPILE_PHASE] - started
                self._measure_suspects(watch, work, measuring_s)
        finally:
            self.totals.phase_s, self.totals.restarts = self._driver.phase_s, self._driver.restarts
            self.totals.compile_s = self._driver.phase_s[COMPILE_PHASE]
            self.totals.wall_s = time.monotonic() - start
            uses, of = sorted(self._driver.worker_s.items()), (self.totals.compile_s, self.totals.wall_s)
            self.totals.uses = {node: uses_of(phase_s, *of) for node, phase_s in uses}
        phase_s = {phase: round(seconds, 3) for phase, seconds in self.totals.phase_s.items()}
        wall_s = round(self.totals.wall_s, 3)
        self._journal.end_run(EndRecord(self._run.run_id, str(self._stop.reason), wall_s, phase_s))
        return self.totals

    def _unfinished(self, plan: Plan, results: PairResults) -> Plan:
        """Remaining problems with kernels, or leaders, to measure.

        A problem partly measured by a missing device is measured again as a whole; its old rows count until then.
        """
        self._whole = {task.problem.canonical(): task for task in plan.tasks}
        left, here = [], self._driver.names
        for problem, task in self._whole.items():
            kernels = tuple(kernel for kernel in task.kernels if not results.has(problem, full_name(kernel)))
            if not kernels and not self._leaders(problem, results):
                continue
            device = results.device(problem)
            if device is not None and device not in here:
                results.set_aside(problem)
                kernels = tuple(task.kernels)
            left.append(replace(task, kernels=kernels))
        return replace(plan, tasks=tuple(left))

    def _tasks(self, tasks: Iterable[Task], results: PairResults) -> BegunTasks[Task]:
        """Tasks for the devices that measured part of their problems, else for any device."""
        begun = ((task, results.device(task.problem.canonical())) for task in tasks)
        return BegunTasks(begun, lambda name: name in self._driver.names)

    def _require_alike(self, left: Plan, built: dict[str, Built]) -> None:
        """Compare the devices with each other, and with those of earlier runs."""
        pair = self._reference(left, built)
        if pair is None or self._stop():
            return
        problem, kernel = pair
        looks: dict[str, list[float]] = {}
        for look in self._looks:
            if (look.problem, look.kernel) == pair:
                looks.setdefault(look.node, []).append(look.latency_ms)

        def seen(node: str, ms: float) -> None:
            with self._lock:
                record = ReferenceRecord(self._run.run_id, problem, kernel, ms, 1.0, None, None, time.time(), node)
                self._journal.add_reference(record)

        earlier = {node: median(times) for node, times in looks.items()}
        reference = Reference(on_problem(problem), built[kernel], earlier, seen)
        self._driver.require_alike(Alike(self._driver.configs[0].kind, reference))

    def _reference(self, left: Plan, built: dict[str, Built]) -> tuple[str, str] | None:
        """Problem and kernel to compare devices by: those of earlier runs, or any working pair."""
        if self._looks and (name := self._looks[0].kernel) in built and built[name].status is Status.OK:
            return self._looks[0].problem, name
        for task in by_computing(left.tasks, self._driver.configs[0].kind):
            names = (name for name in map(full_name, task.kernels) if name in built)
            if good := next((name for name in names if built[name].status is Status.OK), None):
                return task.problem.canonical(), good
        return None

    def _compared(self, plan: Plan) -> tuple[Kernel, ...]:
        """Kernel used by earlier runs to compare devices, if any."""
        names = {self._looks[0].kernel} if self._looks else set()
        return tuple(kernel for kernel in plan.kernels if full_name(kernel) in names) if names else ()

    def _leading_kernels(self, left: Plan, results: PairResults) -> tuple[Kernel, ...]:
        """Fastest kernels of finished problems that the last run did not remeasure."""
        needed = set()
        for rest in left.tasks:
            canonical = rest.problem.canonical()
            whole = self._whole[canonical].kernels
            if not rest.kernels:
                names = {leader.kernel for leader in self._leaders(canonical, results)}
                needed |= {kernel for kernel in whole if full_name(kernel) in names}
            elif len(rest.kernels) < len(whole):
                needed |= set(whole)  # any of them may become a leader
        return tuple(needed)

    def _leaders(
        self, problem: str, results: PairResults, new: Sequence[str] = (), visits: int = VISITS
    ) -> list[Leader]:
        """Kernels of a problem to remeasure in rounds: the fastest, and today's, which is the first of a task."""
        kernels = self._whole[problem].kernels if self._run.today is not None and problem in self._whole else ()
        baseline = full_name(kernels[0]) if kernels else None
        return results.leaders(problem, baseline, new, visits)

    def _build(self, kernels: Sequence[Kernel]) -> dict[str, Built]:
        missing = [] if self._stop.left_s is None else self._driver.missing(kernels)
        built = self._driver.build(kernels, "compiling kernels")
        self._compiled += len(missing) - len(self._driver.missing(missing))
        records = {
            built.source_hash: KernelRecord(
                *(self._run.run_id, built.source_hash, built.code_hash, built.binary.resources, built.binary.calling)
            )
            for built in built.values()
            if built.binary is not None
        }
        if records:
            self._journal.add_kernels(list(records.values()))
        # Resources that do not show all of a kernel's code.
        hidden = sum(
            bool(record.calling) or (record.resources is not None and record.resources.has_unexplained_scratch)
            for record in records.values()
        )
        if hidden:
            note(
                f"{hidden} of {len(records)} kernels call functions that the compiler did not inline, or have scratch "
                f"memory without reported spills (columns {CALLING}, scratch_bytes)"
            )
        return {full_name(kernel): within_scratch(build, self._run.max_scratch) for kernel, build in built.items()}

    def _watch(self, left: Plan, built: dict[str, Built]) -> ReferenceWatch | None:
        """The drift monitor; None for a short run, or without a reference kernel."""
        pair = self._reference(left, built)
        if left.pairs < LEAST_PAIRS or pair is None:
            return None
        problem, kernel = pair
        workers = len(self._driver.configs)
        return ReferenceWatch(self._run.run_id, self._journal, workers, problem, built[kernel], kernel)

    def _measure_suspects(self, watch: ReferenceWatch, work: _Work, measuring_s: float) -> None:
        """Remeasure pairs measured during drift, within a tenth of the measuring time."""
        self.totals.references = watch.looks
        until, suspects = time.monotonic() + AGAIN_SHARE * measuring_s, list(dict.fromkeys(watch.suspects))
        counts = self.totals.statuses.copy()

        def again(worker: JobRunner, task: Task) -> None:
            if time.monotonic() < until and work.results.device(task.problem.canonical()) == worker.node:
                self._measure_task(worker, task, _Work(work.built, PairResults(), work.shown))
                self.totals.drifted += len(task.kernels)
            else:
                self.totals.suspects_left += len(task.kernels)

        if suspects and not self._stop():
            self._driver.serve(self._tasks(suspects, work.results).next, again)
            self.totals.statuses = counts  # of pairs, not of rows

    def _measure_task(self, worker: JobRunner, task: Task, work: _Work) -> None:
        canonical, results = task.problem.canonical(), work.results
        if results.device(canonical) not in {None, worker.node}:
            task = self._whole.get(canonical, task)  # the device that began it is missing
            names = [full_name(kernel) for kernel in task.kernels]
        else:  # its node may have been lost after its first rows, and have returned
            names = [name for kernel in task.kernels if not results.has(canonical, name := full_name(kernel))]
            names = [name for name in names if (canonical, name) not in work.interrupted]
        if any(name not in work.built for name in names):
            return  # the build was stopped
        same: dict[str, list[str]] = {}  # kernels with identical code, of which one is measured
        for name in names:
            built = work.built[name]
            same.setdefault(built.code_hash if built.status is Status.OK else name, []).append(name)
        groups = list(same.values())
        with self._lock:
            self._visits.append((task.problem, len(groups)))
        looks, setup = Looks(), on_problem(canonical, results.best_ns(canonical))
        for number, reply in measure(worker, setup, [work.built[first] for first, *_ in groups], self._run.samples):
            rows = tuple(self._rows(worker, canonical, groups[number], reply, work))
            self._add(results, *rows)
            if rows[0].status in TRIED_AGAIN:
                work.interrupted.update((canonical, name) for name in groups[number])
            work.advance(len(groups[number]), canonical)
            looks.add(groups[number][0], reply)
            setup = with_anchor(setup, work.built[groups[number][0]].library, reply)
        for _ in range(MAX_PASSES):
            self._measure_moved(worker, setup, groups, looks, work)
            tried = ((canonical, full_name(kernel)) for kernel in task.kernels)
            if self._stop() or not all(results.has(*pair) or pair in work.interrupted for pair in tried):
                return
            self._measure_leaders(worker, setup, looks, work, names)
            if not looks.moved() and not self._leaders(canonical, results, visits=1):  # the fastest was remeasured
                return

    def _measure_moved(
        self, worker: JobRunner, setup: Job, groups: Sequence[Sequence[str]], looks: Looks, work: _Work
    ) -> None:
        """Remeasure kernels of a problem that were measured at another clock than the last ones."""
        for _ in range(MAX_PASSES):
            moved = looks.moved()
            again = [group for group in groups if group[0] in moved]
            if not again or self._stop():
                return
            for number, reply in measure(worker, setup, [work.built[first] for first, *_ in again], self._run.samples):
                looks.add(again[number][0], reply)
                self.totals.drifted += len(again[number])
                self._keep(work.results, *self._rows(worker, setup.problem, again[number], reply, work))

    def _rows(
        self, worker: JobRunner, canonical: str, names: Sequence[str], reply: Reply, work: _Work
    ) -> Iterator[ResultRow]:
        """Rows of kernels with identical code, measured once."""
        first, *twins = names
        reply = self._driver.possible(reply, canonical)
        row = structs.replace(
            result_row(self._run.run_id, canonical, first, reply, work.built[first]), node=worker.node
        )
        yield row
        for name in twins:
            message = f"the same code as {first}, measured once" + (f": {row.message}" if row.message else "")
            yield structs.replace(row, kernel=name, source_hash=work.built[name].source_hash, message=message)

    def _measure_leaders(self, worker: JobRunner, setup: Job, looks: Looks, work: _Work, names: Sequence[str]) -> None:
        results, built, canonical = work.results, work.built, setup.problem
        leaders = self._leaders(canonical, results, names, 1 if names else VISITS)  # without new ones: a later visit
        if not leaders or any(leader.kernel not in built for leader in leaders):
            return
        kernels = [(built[leader.kernel].library, leader.loops) for leader in leaders]
        seed = f"{self._run.seed} leaders {canonical} {names}"
        best = replace(setup, best_ns=results.best_ns(canonical))
        replies = time_in_rounds(worker, best, kernels, self._run.samples, seed)
        if replies is None or any(reply.status is Status.OUT_OF_MEMORY for reply in replies):
            return  # the next run repeats it
        looks.add_rounds({leader.kernel for leader in leaders}, replies)
        moved, now = looks.moved(), round(time.time(), 3)
        rows = [
            structs.replace(_unless_moved(row, moved), remeasured=True, time=now)
            for leader, reply in zip(leaders, replies, strict=True)
            for row in self._rows(worker, canonical, [leader.kernel], reply, work)
        ]
        # As one call, so that a problem's leaders are never compared with times of different rounds.
        self._keep(results, *rows)
        self.totals.remeasured += len(rows)

    def _add(self, results: PairResults, *rows: ResultRow) -> None:
        """Add the first rows of pairs."""
        self._keep(results, *rows)
        with self._lock:
            for row in rows:
                self.totals.statuses[str(row.status)] += 1
                if row.status not in RIGHT:
                    self.totals.first_failures.setdefault(str(row.status), row.message)
        node, status = rows[0].node, rows[0].status
        if status in MEASURED:
            self._impossible[node] = 0
        self._impossible[node] += status is Status.IMPOSSIBLE_TIME
        if self._impossible[node] >= MOST_IMPOSSIBLE:
            raise DeviceError(
                f"{MOST_IMPOSSIBLE} times in a row cannot be: {rows[0].message}",
                "check the GPU (rocm-smi, dmesg) and --arch, and continue with --resume; --no-peak-check takes times "
                "above the peak rates",
                code="impossible-time",
            )

    def _keep(self, results: PairResults, *rows: ResultRow) -> None:
        with self._lock:
            self._journal.add(*rows)
            for row in rows:
                results.add(row)
                self.totals.shared += bool(row.card.get("other_processes"))


def _unless_moved(row: ResultRow, moved: Collection[str]) -> ResultRow:
    """Mark the row of rounds during which the clock changed as unstable."""
    if row.kernel not in moved or row.status is not Status.OK:
        return row
    return structs.replace(row, status=Status.UNSTABLE, message="the clock changed while it was measured")
