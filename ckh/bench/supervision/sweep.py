"""A run of bench: build the kernels of a plan, measure them problem by problem, and journal every result.

The fastest kernels of each problem, and the one in use today if it is known, are remeasured in rounds of random order,
so that clock drift affects all alike; these times replace the first ones. If the one in use is slower, later once more.

Where many kernels are to compile, one for each compiler is measured first, on GPUs while the others are compiled. With
a budget, kernels are built in parts, each measured as soon as it is built, on GPUs while the next is compiled: the
first two of every problem, then, in parts of half of the remaining time by the rate of this run, the next ones of the
problems with the most time x uncertainty. So a budget too short for the plan gives times, too. Whenever a part is
measured, `--plan auto` may plan the rest again by the times of this run.

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
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ckh.bench.planning.pace import Work
from ckh.bench.planning.plan import full_name
from ckh.bench.planning.results import VISITS, PairResults, by_worth, plan_records
from ckh.bench.supervision.driver import COMPILE_PHASE, BegunTasks, time_in_rounds, uses_of
from ckh.bench.supervision.reference_watch import (
    AGAIN_SHARE,
    LEAST_PAIRS,
    Alike,
    Reference,
    ReferenceWatch,
    by_computing,
)
from ckh.bench.supervision.runner import (
    Totals,
    measure,
    note_hidden_code,
    on_problem,
    result_row,
    unless_moved,
    within_scratch,
)
from ckh.bench.supervision.supervisor import MAX_PASSES, Looks, with_anchor
from ckh.data.journal import EndRecord, KernelRecord, ReferenceRecord
from ckh.errors import DeviceError
from ckh.schema import MEASURED, RIGHT, TRIED_AGAIN, Status
from ckh.text.durations import format_duration
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
_MANY = 8  # kernels to compile for each compiler, above which some are measured first
MOST_IMPOSSIBLE = 5  # kernels in a row whose times cannot be, before the run stops


@dataclass(slots=True)
class _Work:
    """State shared by the tasks of a run: kernels by name, results of pairs, the progress bar."""

    built: dict[str, Built]
    results: PairResults
    shown: ExitStack
    advance: Callable[[int, str], None] = lambda _steps, _text: None
    compiling: int = 0
    """Kernels that are being compiled."""
    interrupted: set[tuple[str, str]] = field(default_factory=set)
    """Pairs whose kernel's compiler was interrupted in this run; the next run tries them again."""

    def unbuilt(self, kernels: Iterable[Kernel]) -> list[Kernel]:
        """The kernels that are not built yet."""
        return [kernel for kernel in kernels if full_name(kernel) not in self.built]

    def built_of(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks with those of their kernels that are built."""
        return [replace(task, kernels=tuple(k for k in task.kernels if full_name(k) in self.built)) for task in tasks]


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
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self._driver = driver
        self._run = run
        self._journal = journal
        self._stop = stop
        self._looks = looks
        self._plan_again = plan_again  # of the work done and the seconds left
        self._counts = counts or {}  # executions of problems, by canonical text; of others 1
        self._visits: Visits = []
        self._whole: dict[str, Task] = {}  # the plan's task of each problem
        self._lock = threading.Lock()
        self._compiled: list[Kernel] = []  # by this run
        self._waited_s = 0.0  # for compilers, while nothing was measured
        self._impossible: Counter[str] = Counter()  # kernels in a row without a possible time, by device
        self.totals = Totals(workers=len(driver.configs))

    def measure(self, plan: Plan, results: PairResults) -> Totals:
        """Measure pairs missing in `results`, until complete or stopped."""
        left = self._unfinished(plan, results)
        jobs, used = self._driver.jobs, self._looks[0].kernel if self._looks else ""  # by earlier runs
        compared = tuple(kernel for kernel in plan.kernels if used and full_name(kernel) == used)
        if self._stop.left_s is None:
            kernels = left.kernels + self._leading_kernels(left, results)
            if len(kernels) <= _MANY * jobs or len(self._driver.missing(kernels)) <= _MANY * jobs:
                return self._measured(left, kernels + compared, results, partial(self._serve, left.tasks))
        first = self._first_kernels(left)[:jobs]
        return self._measured(left, (*first, *compared), results, partial(self._widen, left))

    def _widen(self, left: Plan, work: _Work, watch: ReferenceWatch | None) -> None:
        """Measure the kernels that are built, and build the next ones meanwhile, until none or no time is left."""
        while not self._stop():
            part = self._next_kernels(left, work)
            missing, finish = self._driver.missing(part), self._driver.begin_build(part)
            work.compiling = len(missing)
            self._serve(work.built_of(left.tasks) if part else left.tasks, work, watch)
            work.built.update(self._kept(finish, missing) if part else {})
            if (again := self._planned_again()) is not None:
                left = self._unfinished(again, work.results)
                self._show(left, work)
            elif not part:
                return

    def _planned_again(self) -> Plan | None:
        """A new plan for the rest of the budget, which the journal has from now on; None: the plan stays."""
        if self._plan_again is None or self._stop.left_s is None or self._stop():
            return None
        driver = self._driver
        done = Work(self._visits, driver.phase_s, driver.jobs, len(driver.configs), tuple(self._compiled))
        plan = self._plan_again(done, self._stop.left_s)
        if plan is not None:
            self._journal.add_plan(plan_records(self._run.run_id, plan, is_new=True))
        return plan

    def _show(self, left: Plan, work: _Work) -> None:
        """Begin a progress bar, with the best so far and the time left if there is a budget."""
        work.shown.close()
        so_far = self._stop.left_s is not None and partial(self._so_far, work)
        work.advance = work.shown.enter_context(progress("measuring", left.pairs, so_far or None))

    def _so_far(self, work: _Work) -> str:
        """Text for the progress bar: problems measured, best total time so far, and time left."""
        with self._lock:
            timed, best_ms, first_ms = work.results.best_so_far(self._whole.values(), self._counts)
        best = f"best so far {best_ms:.4g} ms, first choices {first_ms:.4g} ms, " if first_ms else ""
        compiling = f", compiling {work.compiling} kernels" if work.compiling else ""
        reached = f"pairs of {timed}/{len(self._whole)} problems, {best}"
        return f"{reached}{format_duration(self._stop.left_s or 0.0)} left{compiling}"

    def _first_kernels(self, left: Plan) -> tuple[Kernel, ...]:
        """The first two kernels of each problem, today's and the first choice; first one for the drift monitor."""
        tasks = [(task, self._whole[task.problem.canonical()].kernels[:_FIRST]) for task in left.tasks]
        computing = by_computing([task for task in left.tasks if task.kernels], self._driver.configs[0].kind)[:1]
        first = (kernel for task, kernels in tasks for kernel in kernels if kernel in task.kernels)
        return tuple(dict.fromkeys((*(task.kernels[0] for task in computing), *first)))

    def _next_kernels(self, left: Plan, work: _Work) -> list[Kernel]:
        """Select kernels to build that compile in half of the time left: the first of each problem, then others.

        Without a budget, all are built.
        """
        if self._stop.left_s is None:
            return work.unbuilt(left.kernels + self._leading_kernels(left, work.results))
        count, chosen = self._driver.jobs, dict[Any, None]()
        if self._compiled:
            rate_s = self._driver.phase_s[COMPILE_PHASE] / len(self._compiled)
            count = max(count, int(_COMPILING * self._stop.left_s / rate_s))
        leading = work.unbuilt(self._leading_kernels(left, work.results))
        rest = [(task.problem.canonical(), work.unbuilt(task.kernels)) for task in left.tasks]
        others = chain(leading, by_worth(rest, work.results, self._counts))
        for kernel in work.unbuilt(self._first_kernels(left)) or others:
            if count <= 0:
                break
            if kernel not in chosen:
                count -= len(self._driver.missing([kernel]))
                chosen[kernel] = None
        return list(chosen)

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
                started = time.monotonic() - self._waited_s
                serve(work, watch)
                if again := [task for name, task in self._whole.items() if self._leaders(name, results)]:
                    self._serve([replace(task, kernels=()) for task in again], work, watch)
            if watch is not None:
                self._measure_suspects(watch, work, time.monotonic() - self._waited_s - started)
        finally:
            self.totals.phase_s, self.totals.restarts = self._driver.phase_s, self._driver.restarts
            self.totals.compile_s = self._waited_s
            self.totals.wall_s = time.monotonic() - start
            uses, of = sorted(self._driver.worker_s.items()), (self.totals.compile_s, self.totals.wall_s)
            self.totals.uses = {node: uses_of(phase_s, *of) for node, phase_s in uses}
        phase_s = {phase: round(seconds, 3) for phase, seconds in self.totals.phase_s.items()}
        self._journal.end_run(
            EndRecord(self._run.run_id, str(self._stop.reason), round(self.totals.wall_s, 3), phase_s)
        )
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
        return self._kept(partial(self._driver.build, kernels, "compiling kernels"), missing)

    def _kept(self, finish: Callable[[], dict[Kernel, Built]], missing: Sequence[Kernel]) -> dict[str, Built]:
        """Wait for a build, given its kernels that were not compiled before, and write its records."""
        start = time.monotonic()
        built = finish()
        self._waited_s += time.monotonic() - start
        left = set(self._driver.missing(missing))
        self._compiled += [kernel for kernel in missing if kernel not in left]
        records = {
            built.source_hash: KernelRecord(
                *(self._run.run_id, built.source_hash, built.code_hash, built.binary.resources, built.binary.calling)
            )
            for built in built.values()
            if built.binary is not None
        }
        if records:
            self._journal.add_kernels(list(records.values()))
        note_hidden_code(list(records.values()))
        return {full_name(kernel): within_scratch(build, self._run.max_scratch) for kernel, build in built.items()}

    def _watch(self, left: Plan, built: dict[str, Built]) -> ReferenceWatch | None:
        """The drift monitor; None for a short run, or without a reference kernel."""
        pair = self._reference(left, built)
        if left.pairs < LEAST_PAIRS or pair is None:
            return None
        workers, (problem, kernel) = len(self._driver.configs), pair
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
        seed = f"{self._run.seed} leaders {canonical}" + ("" if names else " again")
        best = replace(setup, best_ns=results.best_ns(canonical))
        replies = time_in_rounds(worker, best, kernels, self._run.samples, seed)
        if replies is None or any(reply.status is Status.OUT_OF_MEMORY for reply in replies):
            return  # the next run repeats it
        looks.add_rounds({leader.kernel for leader in leaders}, replies)
        moved, now = looks.moved(), round(time.time(), 3)
        rows = [
            structs.replace(unless_moved(row, moved), remeasured=True, time=now)
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
