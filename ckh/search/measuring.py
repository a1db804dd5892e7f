"""Search by measuring: proposals are compiled and timed, the best are remeasured in rounds, all results are journalled.

While a search waits for a compiler, the kernels that it will probably request next are compiled in parallel; nothing is
compiled while a kernel is timed.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from ckh.bench.devices.device import HIP_KIND
from ckh.bench.isolated.rounds import time_in_rounds
from ckh.bench.nodes.cluster_driver import driver_for
from ckh.bench.planning.plan import SEARCH, full_name
from ckh.bench.supervision.journal_rows import NS_PER_MS, new_record, result_row
from ckh.bench.supervision.limits import Stop, StopReason
from ckh.bench.supervision.runner import measure, on_problem
from ckh.data.journal import EndRecord, KernelRecord, ResultRow
from ckh.data.settings import Settings
from ckh.learn.models.pooled import PooledScores
from ckh.ops import operation_of
from ckh.schema import MEASURED
from ckh.search.run import StoppedError, run
from ckh.search.strategies import make_strategy
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device, DeviceIdentity
    from ckh.bench.nodes.remote import DeviceRequest
    from ckh.bench.supervision.driver import Driver
    from ckh.bench.supervision.limits import BenchLimits
    from ckh.bench.supervision.protocol import Job, Reply
    from ckh.cluster.calls import Cluster
    from ckh.data.journal import JournalWriter, RunRecord
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem
    from ckh.search.kernels import KernelSpace
    from ckh.search.strategies import Strategy

_LOOK_AHEAD = 4  # ratio of expected kernels to compilers, as some kernels are compiled already


class Measurer:
    """Compiles and measures kernels on one problem, one at a time, in its own worker. Use it as a context manager."""

    def __init__(self, driver: Driver, problem: str, run: RunRecord, journal: JournalWriter) -> None:
        self._driver = driver
        self._problem = problem
        self._run = run
        self._journal = journal
        self._open = ExitStack()
        self._made: dict[Kernel, Built] = {}
        self._built: dict[str, Built] = {}
        self._best_ns = 0.0

    def __enter__(self) -> Measurer:  # noqa: PYI034 - Self is not in Python 3.10
        """Open a worker, which starts with its first job."""
        self._worker = self._open.enter_context(self._driver.worker())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the worker."""
        self._open.__exit__(kind, error, at)

    def measure(self, kernel: Kernel, ahead: Callable[[int], Sequence[Kernel]] = lambda _count: ()) -> ResultRow:
        """Measure a kernel and write its row to the journal."""
        name, built = full_name(kernel), self._build(kernel, ahead)
        replies = [reply for _, reply in measure(self._worker, self._setup(), [built], self._run.samples)]
        if not replies:
            raise StoppedError
        row = self._row(name, replies[0], built)
        self._journal.add(row)
        if row.status in MEASURED and row.latency_ms:
            time_ns = row.latency_ms * NS_PER_MS
            self._best_ns = min(self._best_ns or time_ns, time_ns)
        return row

    def compare(
        self, rows: Sequence[ResultRow], rounds: int, seed: int, should_stop: Callable[[], bool]
    ) -> list[ResultRow]:
        """Remeasure kernels in rounds; returns the journalled rows that replace theirs, fastest first."""
        kernels = [(self._built[row.kernel].library, row.loops) for row in rows]
        with self._driver.worker(should_stop=should_stop) as worker:
            replies = time_in_rounds(worker, self._setup(), kernels, rounds, f"{seed} best {self._problem}")
        if replies is None:
            raise StoppedError
        again = [
            structs.replace(self._row(row.kernel, reply, self._built[row.kernel]), remeasured=True)
            for row, reply in zip(rows, replies, strict=True)
        ]
        self._journal.add(*again)
        return sorted((row for row in again if row.latency_ms), key=lambda row: row.latency_ms or 0.0)

    def _setup(self) -> Job:
        return on_problem(self._problem, self._best_ns)

    def _build(self, kernel: Kernel, ahead: Callable[[int], Sequence[Kernel]]) -> Built:
        if kernel not in self._made:
            jobs = self._driver.jobs
            others = [other for other in ahead(_LOOK_AHEAD * jobs) if other not in self._made]
            self._made |= self._driver.build([kernel, *others[: jobs - 1]])
        if kernel not in self._made:
            raise StoppedError
        built = self._made[kernel]
        self._built[full_name(kernel)] = built
        if built.binary is not None:
            report = (built.binary.resources, built.binary.calling)
            self._journal.add_kernels([KernelRecord(self._run.run_id, built.source_hash, built.code_hash, *report)])
        return built

    def _row(self, kernel: str, reply: Reply, built: Built) -> ResultRow:
        row = result_row(self._run.run_id, self._problem, kernel, reply, built)
        return structs.replace(row, node=self._worker.node)


_LEAST_TFLOPS = 1e-9
_ROUNDS = 11  # in which the best are remeasured


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The settings of a search."""

    strategy: str
    seed: int
    evaluations: int
    top: int
    samples: int
    cold: bool | None
    limits: BenchLimits


@dataclass(frozen=True, slots=True, eq=False)
class Guide:
    """A model's prior: a score for each kernel, and the index of its first choice in the pool, if any."""

    prior: NDArray[np.float64]
    first_choice: int | None

    @classmethod
    def of(cls, model: Model, problem: Problem, space: KernelSpace) -> Guide:
        """Guide by a model's scores of a space; of TFLOPS, their logarithm."""
        scores = PooledScores(model, space.kernels)(problem, np.arange(len(space)))
        scores = np.log(np.maximum(scores, _LEAST_TFLOPS)) if model.spec.rank_by == TFLOPS else scores
        return cls(scores, int(scores[: space.pool_size].argmax()) if space.pool_size else None)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of a search."""

    reason: StopReason
    rows: tuple[ResultRow, ...]
    best: tuple[ResultRow, ...]
    first_choice: ResultRow | None
    wall_s: float

    @property
    def statuses(self) -> dict[str, int]:
        """Number of rows of each status, most frequent first."""
        return dict(Counter(str(row.status) for row in self.rows).most_common())

    @property
    def ratio(self) -> float | None:
        """Time of the model's first choice in the pool divided by the best time."""
        if self.first_choice is None or not self.best or not self.first_choice.latency_ms:
            return None
        return self.first_choice.latency_ms / (self.best[0].latency_ms or self.first_choice.latency_ms)


@dataclass(frozen=True, slots=True)
class Where:
    """Where kernels are measured: on the nodes of a cluster, each of which opens the requested device, or here (None).

    On a cluster one device measures all kernels, and all nodes compile.
    """

    request: DeviceRequest
    cluster: Cluster | None = None


def search_measured(
    device: Device,
    where: Where,
    problem: Problem,
    space: KernelSpace,
    guide: Guide | None,
    settings: SearchSettings,
    open_journal: Callable[[], JournalWriter],
    advance: Callable[[int, str], None],
) -> Measurement:
    """Find the fastest kernel by measuring, until the evaluations or the time are used up, or it is stopped."""
    first = None if guide is None else guide.first_choice
    prior = None if guide is None else guide.prior
    starts = () if first is None else (first,)
    strategy = make_strategy(settings.strategy, space.space, settings.seed, prior, starts)
    start, interrupt, limit = time.monotonic(), Stop(), Stop(settings.limits.budget_s)

    def should_stop() -> bool:
        return interrupt() or limit()

    with ExitStack() as stack:
        driver = stack.enter_context(driver_for(where.cluster, where.request, device, settings.limits, should_stop))
        record = _record(driver.identity, problem, settings)
        journal = open_journal()
        stack.callback(journal.close)
        journal.start_run(record)
        stack.enter_context(interrupt)
        with Measurer(driver, problem.canonical(), record, journal) as measurer:
            rows = _Rows(measurer, space, strategy, advance)
            run(strategy, rows.evaluate, settings.evaluations, should_stop)
        is_done = len(rows.by_index) == settings.evaluations or strategy.is_exhausted
        finalists = rows.finalists(settings.top, first)
        try:
            finalists = measurer.compare(finalists, _ROUNDS, settings.seed, interrupt)
        except StoppedError:
            is_done = False
        wall_s = time.monotonic() - start
        reason = _reason(interrupt, is_done=is_done)
        phase_s = {phase: round(seconds, 3) for phase, seconds in driver.phase_s.items()}
        journal.end_run(EndRecord(record.run_id, str(reason), round(wall_s, 3), phase_s))
    measured = tuple(rows.by_index.values())
    return Measurement(reason, measured, tuple(finalists[: settings.top]), rows.of(first, finalists), wall_s)


class _Rows:
    """The measured rows by kernel index, in order."""

    def __init__(
        self, measurer: Measurer, space: KernelSpace, strategy: Strategy, advance: Callable[[int, str], None]
    ) -> None:
        self._measurer = measurer
        self._space = space
        self._strategy = strategy
        self._advance = advance
        self._best_ms: float | None = None
        self.by_index: dict[int, ResultRow] = {}

    def evaluate(self, index: int) -> float | None:
        """Time of a kernel in ms, None if it failed."""
        row = self._measurer.measure(self._space.kernels[index], self._ahead)
        self.by_index[index] = row
        time_ms = row.latency_ms
        if time_ms is not None and (self._best_ms is None or time_ms < self._best_ms):
            self._best_ms = time_ms
        self._advance(1, "" if self._best_ms is None else f"best {self._best_ms:.4g} ms")
        return time_ms

    def _ahead(self, count: int) -> list[Kernel]:
        return [self._space.kernels[index] for index in self._strategy.ahead(count)]

    def finalists(self, top: int, first: int | None) -> list[ResultRow]:
        """The fastest kernels, fastest first, and the model's first choice in the pool if it is not among them."""
        timed = {index: row for index, row in self.by_index.items() if row.latency_ms}
        ranked = sorted(timed, key=lambda index: timed[index].latency_ms or 0.0)
        chosen = dict.fromkeys(ranked[:top])
        if first in timed:
            chosen[first] = None
        return [timed[index] for index in chosen]

    def of(self, first: int | None, finalists: Sequence[ResultRow]) -> ResultRow | None:
        """Row of the model's first choice among the finalists; None if there is none."""
        name = self.by_index[first].kernel if first in self.by_index else ""
        return next((row for row in finalists if row.kernel == name), None)


def _reason(interrupt: Stop, *, is_done: bool) -> StopReason:
    if interrupt():
        return StopReason.INTERRUPTED
    return StopReason.COMPLETE if is_done else StopReason.BUDGET


def _record(identity: DeviceIdentity, problem: Problem, settings: SearchSettings) -> RunRecord:
    op = operation_of(problem.canonical())
    recorded = Settings(
        op=op.name,
        variant=str(problem.variant) if op.has_directions else "",  # type: ignore[attr-defined]
        problems=problem.canonical(),
        kernels=f"{SEARCH}{settings.strategy}",
        dtype=problem.dtype,
        seed=settings.seed,
        samples=settings.samples,
        cold=bool(settings.cold),
        rotating=int(settings.cold is not None or identity.kind != HIP_KIND),
    )
    return new_record(identity, recorded)
