"""A run of bench: builds the kernels of a plan, measures them problem by problem, and journals every result.

Of each problem, the leaders of the first pass are measured again in rounds, each leader once a round in random order,
so that a drift of the clock hits all alike. Those times replace the first ones.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ckh.bench.compile import Built, KernelBuilder
from ckh.bench.plan import full_name
from ckh.bench.protocol import Job, Op, Reply
from ckh.bench.rounds import time_in_rounds
from ckh.bench.supervisor import Supervisor, SupervisorOptions
from ckh.bench.timing import UNSTABLE_SPREAD, summarize
from ckh.data.journal import EndRecord, ResultRow
from ckh.data.schema import MEASURED, Status
from ckh.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ckh.bench.device import Device
    from ckh.bench.plan import Plan, Task
    from ckh.bench.stop import Stop
    from ckh.data.journal import JournalWriter, RunRecord
    from ckh.kernels.config import ConvKernel

LEADER_MARGIN = 0.08  # how far behind the fastest a kernel is still measured again
MAX_LEADERS = 12
COMPILE_PHASE = "compile"

_MIN_SAMPLES_FOR_SPREAD = 3
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """`jobs` compilers at a time; each time limit in seconds."""

    jobs: int
    compile_timeout_s: float
    supervisor: SupervisorOptions


@dataclass(slots=True)
class Totals:
    """What a run did: result rows by status, seconds by phase and in all."""

    statuses: Counter[str] = field(default_factory=Counter)
    remeasured: int = 0
    compile_s: float = 0.0
    wall_s: float = 0.0
    phase_s: dict[str, float] = field(default_factory=dict)
    restarts: int = 0


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
        """Whether there is a row of the pair."""
        return kernel in self._by_problem.get(problem, {})

    def best_ns(self, problem: str) -> float:
        """The least median time of a problem, 0 if none is known."""
        return min((_time_ns(row) for row in self._measured(problem)), default=0.0)

    def leaders(self, problem: str) -> list[ResultRow]:
        """The rows to measure again, fastest first; none if that was done or there is nothing to compare."""
        ranked = sorted(self._measured(problem), key=_time_ns)
        if not ranked or any(row.remeasured for row in self._by_problem[problem].values()):
            return []
        limit = _time_ns(ranked[0]) * (1 + LEADER_MARGIN)
        close = [row for row in ranked[:MAX_LEADERS] if _time_ns(row) <= limit]
        return close if len(close) > 1 else []

    def _measured(self, problem: str) -> list[ResultRow]:
        rows = self._by_problem.get(problem, {}).values()
        return [row for row in rows if row.status in MEASURED and row.latency_ms]


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
        self.totals = Totals()

    def measure(self, plan: Plan, results: Results) -> Totals:
        """Measure what `results` does not hold yet, until it is complete or stopped. Returns what was done.

        Raises:
            DeviceError: the device or compiler cannot be used.
            DataError: journal or cache cannot be written; all earlier results are in the journal.
        """
        start = time.monotonic()
        left = plan.without(results.has)
        try:
            built = self._build(left.kernels + self._leading_kernels(plan, left, results))
            with Supervisor(self._device, self._options.supervisor, self._stop) as supervisor:
                try:
                    self._measure_all(supervisor, left, built, results)
                finally:
                    self.totals.phase_s = {COMPILE_PHASE: self.totals.compile_s, **supervisor.phase_s}
                    self.totals.restarts = max(supervisor.restarts, 0)
        finally:
            self.totals.wall_s = time.monotonic() - start
        phase_s = {phase: round(seconds, 3) for phase, seconds in self.totals.phase_s.items()}
        wall_s = round(self.totals.wall_s, 3)
        self._journal.end_run(EndRecord(self._run.run_id, str(self._stop.reason), wall_s, phase_s))
        return self.totals

    def _leading_kernels(self, plan: Plan, left: Plan, results: Results) -> tuple[ConvKernel, ...]:
        """Kernels of finished problems whose leaders were not measured again when the last run ended."""
        needed = set()
        for task, rest in zip(plan.tasks, left.tasks, strict=True):
            if not rest.kernels:
                names = {row.kernel for row in results.leaders(task.problem.canonical())}
                needed |= {kernel for kernel in task.kernels if full_name(kernel) in names}
            elif len(rest.kernels) < len(task.kernels):
                needed |= set(task.kernels)  # any of them may turn out to lead
        return tuple(needed)

    def _build(self, kernels: Sequence[ConvKernel]) -> dict[str, Built]:
        start = time.monotonic()
        builder = KernelBuilder(self._device, self._options.compile_timeout_s)
        distinct = list(dict.fromkeys(kernels))
        with progress("compiling kernels", len(distinct)) as advance:
            built = builder.build(distinct, self._options.jobs, advance, self._stop)
        self.totals.compile_s = time.monotonic() - start
        return {full_name(kernel): result for kernel, result in built.items()}

    def _measure_all(self, supervisor: Supervisor, left: Plan, built: dict[str, Built], results: Results) -> None:
        with progress("measuring", left.pairs) as advance:
            for task in left.tasks:
                if self._stop():
                    return
                self._measure_task(supervisor, task, built, results, advance)

    def _measure_task(
        self,
        supervisor: Supervisor,
        task: Task,
        built: dict[str, Built],
        results: Results,
        advance: Callable[[int, str], None],
    ) -> None:
        canonical = task.problem.canonical()
        jobs: list[Job] = []
        names = [full_name(kernel) for kernel in task.kernels]
        for number, name in enumerate(names):
            made = built.get(name)
            if made is None:
                return  # the build was stopped
            if made.status is Status.OK:
                jobs.append(Job(Op.MEASURE, number, library=made.library, samples=self._run.samples))
            else:
                self._add(results, self._row(canonical, name, Reply(number, made.status, made.message), made))
                advance(1, canonical)
        setup = Job(Op.PROBLEM, -1, problem=canonical, best_ns=results.best_ns(canonical))
        for job, reply in supervisor.run(setup, jobs):
            name = names[job.id]
            self._add(results, self._row(canonical, name, reply, built[name]))
            advance(1, canonical)
        if all(results.has(canonical, name) for name in names) and not self._stop():
            self._measure_leaders(supervisor, canonical, built, results)

    def _measure_leaders(
        self, supervisor: Supervisor, canonical: str, built: dict[str, Built], results: Results
    ) -> None:
        leaders = results.leaders(canonical)
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
        self._journal.add(*rows)
        for row in rows:
            results.add(row)
        self.totals.remeasured += len(rows)

    def _add(self, results: Results, row: ResultRow) -> None:
        self._journal.add(row)
        results.add(row)
        self.totals.statuses[str(row.status)] += 1

    def _row(self, canonical: str, kernel: str, reply: Reply, built: Built) -> ResultRow:
        row = ResultRow(
            run_id=self._run.run_id,
            problem=canonical,
            kernel=kernel,
            status=reply.status,
            message=reply.message,
            source_hash=built.source_hash,
            time=round(time.time(), 3),
        )
        if reply.status is not Status.OK:
            return row
        timing = summarize(reply.samples_ns)
        is_unstable = len(reply.samples_ns) >= _MIN_SAMPLES_FOR_SPREAD and timing.spread > UNSTABLE_SPREAD
        return replace(
            row,
            status=Status.UNSTABLE if is_unstable else Status.OK,
            message=f"the samples spread by {timing.spread:.1%}" if is_unstable else "",
            latency_ms=timing.median_ns / _NS_PER_MS,
            latency_min_ms=timing.min_ns / _NS_PER_MS,
            spread=round(timing.spread, 6),
            samples_ns=reply.samples_ns,
            loops=reply.loops,
        )


def _time_ns(row: ResultRow) -> float:
    return (row.latency_ms or 0.0) * _NS_PER_MS
