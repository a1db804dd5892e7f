"""Search by measuring: proposals are compiled and timed, the best are remeasured in rounds, all results are journalled.

While a search waits for a compiler, the kernels that it will probably request next are compiled in parallel; nothing is
compiled while a kernel is timed.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.devices.device import HIP_KIND, HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import default_device_kind, open_device
from ckh.bench.planning.plan import SEARCH, full_name
from ckh.bench.planning.planner import KnownBefore
from ckh.bench.supervision.cluster_driver import driver_for
from ckh.bench.supervision.driver import time_in_rounds
from ckh.bench.supervision.limits import Stop, StopReason
from ckh.bench.supervision.remote import DeviceRequest
from ckh.bench.supervision.runner import NS_PER_MS, measure, new_record, on_problem, result_row
from ckh.cluster.connection import connected
from ckh.data.journal import JOURNAL, JOURNAL_NAME, EndRecord, JournalWriter, KernelRecord, ResultRow, is_started
from ckh.data.settings import Settings
from ckh.errors import NoKernelError, UsageError
from ckh.files.outputs import check_output
from ckh.learn.answers.batches import PooledScores
from ckh.learn.models.artifact import find_model, wanted_for
from ckh.ops import operation_of_problem
from ckh.search.space import kernel_space, searched
from ckh.search.surrogate import StoppedError, Surrogate
from ckh.shapes.problems import problem_of_text
from ckh.text.durations import format_duration
from ckh.text.log import note
from ckh.text.progress import progress
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device, DeviceIdentity
    from ckh.bench.supervision.driver import Driver
    from ckh.bench.supervision.protocol import Reply
    from ckh.bench.supervision.runner import JobRunner
    from ckh.data.journal import RunRecord
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem
    from ckh.search.settings import SearchSettings
    from ckh.search.space import KernelSpace

SPACE_LIMIT = 50_000  # maximum number of kernels in a search
_RUNS = Path("runs")
_NOTHING = Path()  # disables models that come with candidates
_LOOK_AHEAD = 4  # ratio of expected kernels to compilers, as some kernels are compiled already
_LEAST_TFLOPS = 1e-9
_ROUNDS = 11  # in which the best are remeasured


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


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSearch:
    """A search by measuring, and its result: all rows, the best ones, and that of the model's first choice."""

    problem: Problem
    model: Model | None
    space: KernelSpace
    folder: Path
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

    def require_kernel(self) -> None:
        """Refuse a search that found no kernel."""
        if not self.rows:
            raise NoKernelError(
                "no kernel was measured within the budget", "give it more with --budget", code="not-measured"
            )
        if not self.best:
            last = self.rows[-1]
            raise NoKernelError(
                f"none of {len(self.rows)} kernels worked; last failure: {last.status} {last.message}",
                code="no-working-kernel",
            )


def search_measured(
    text: str,
    settings: SearchSettings,
    *,
    arch: str | None = None,
    model: Path | None = None,
    cluster: str | None = None,
    must_be_measured: bool = False,
    force: bool = False,
) -> MeasuredSearch:
    """Find the fastest kernel for a problem, given by its text or source, by measuring on a device.

    The search ends when the evaluations or the time are used up, or on Ctrl-C. On a cluster one device measures all
    kernels, and all nodes compile.
    """
    request = _request(settings, arch)
    device = open_device(request.kind, request.options)
    problem = problem_of_text(text, arch or device.arch.name)
    searched(op := operation_of_problem(problem))
    default = f"search-{device.arch.name}-{datetime.now(timezone.utc):%Y-%m-%d-%H%M%S}"
    folder = Path(settings.out or _RUNS / default)
    check_output(folder / JOURNAL_NAME, JOURNAL, force=force or not is_started(folder / JOURNAL_NAME))
    candidates = op.kernels.candidates(problem, device.arch, _NOTHING).kernels
    wanted = wanted_for(problem, device.arch.name)
    if must_be_measured and model is None:
        find_model(wanted)
    space = kernel_space(problem, device.arch, candidates, SPACE_LIMIT, partial(_can_build, device))
    known = KnownBefore(device.arch.name, model, device.arch.hardware.num_cus)
    used = known.model(problem, candidates or space.kernels[:1])
    if used is None:
        note(f"no model of {wanted}: the first proposals are a design without one")
    elif used.not_measured is not None:
        note(f"no measurements of this GPU: initial proposals by {used.not_measured.source}")
    guide = None if used is None else Guide.of(used, problem, space)
    count = min(settings.evaluations, len(space))
    until = "" if settings.budget_s is None else f", at most {format_duration(settings.budget_s)}"
    note(f"{count} of {len(space)} kernels{until}, into {folder}")
    with ExitStack() as stack:
        nodes = None if cluster is None else stack.enter_context(connected(cluster))
        advance = stack.enter_context(progress("searching", count))
        open_driver = partial(driver_for, nodes, request, device, settings.limits)
        open_journal = partial(JournalWriter, folder, replace=force, is_new=not force)
        outcome = _measured(open_driver, problem, space, guide, settings, open_journal, advance)
    return MeasuredSearch(problem, used, space, folder, *outcome)


def _request(settings: SearchSettings, arch: str | None) -> DeviceRequest:
    """The device to measure on."""
    if settings.gpus is not None and len(settings.gpus) > 1:
        raise UsageError("--gpus: a search measures on one GPU", "name one", code="out-of-range")
    options = DeviceOptions(
        arch=None if arch == HOST_KIND else arch,
        hipcc=settings.hipcc,
        ck_include=settings.ck_include,
        gpus=settings.gpus,
        cold=bool(settings.cold),
        rotating=int(settings.cold is not None),
    )
    return DeviceRequest(settings.device or (HOST_KIND if arch == HOST_KIND else default_device_kind(options)), options)


def _can_build(device: Device, kernel: Kernel) -> bool:
    """True if a device can build a kernel: any on the host; on a GPU, those of CK Tile's headers."""
    if device.arch.is_gpu:
        try:
            device.emit(kernel)
        except UnsupportedKernelError:
            return False
    return True


def _measured(
    open_driver: Callable[[Callable[[], bool]], Driver],
    problem: Problem,
    space: KernelSpace,
    guide: Guide | None,
    settings: SearchSettings,
    open_journal: Callable[[], JournalWriter],
    advance: Callable[[int, str], None],
) -> tuple[StopReason, tuple[ResultRow, ...], tuple[ResultRow, ...], ResultRow | None, float]:
    """Measure what the surrogate proposes, then the best ones together; the last fields of `MeasuredSearch`."""
    first = None if guide is None else guide.first_choice
    prior = None if guide is None else guide.prior
    surrogate = Surrogate(space.space, settings.seed, prior, () if first is None else (first,))
    start, interrupt, limit = time.monotonic(), Stop(), Stop(settings.budget_s)

    def should_stop() -> bool:
        return interrupt() or limit()

    with ExitStack() as stack:
        driver = stack.enter_context(open_driver(should_stop))
        record = _record(driver.identity, problem, settings)
        journal = open_journal()
        stack.callback(journal.close)
        journal.start_run(record)
        stack.enter_context(interrupt)
        with driver.worker() as worker:
            measurer = Measurer(driver, worker, problem.canonical(), space, surrogate, record, journal, advance)
            surrogate.search(measurer.measure, settings.evaluations, should_stop)
        rows = measurer.rows
        is_done = len(rows) == settings.evaluations or surrogate.is_exhausted
        timed = [index for index, row in rows.items() if row.latency_ms]
        ranked = sorted(timed, key=lambda index: rows[index].latency_ms or 0.0)
        chosen = dict.fromkeys([*ranked[: settings.top], *(index for index in timed if index == first)])
        finalists = [rows[index] for index in chosen]
        try:
            finalists = measurer.compare(finalists, _ROUNDS, settings.seed, interrupt)
        except StoppedError:
            is_done = False
        wall_s = time.monotonic() - start
        reason = StopReason.COMPLETE if is_done else StopReason.BUDGET
        reason = StopReason.INTERRUPTED if interrupt() else reason
        phase_s = {phase: round(seconds, 3) for phase, seconds in driver.phase_s.items()}
        journal.end_run(EndRecord(record.run_id, str(reason), round(wall_s, 3), phase_s))
    name = rows[first].kernel if first in rows else ""
    choice = next((row for row in finalists if row.kernel == name), None)
    return reason, tuple(rows.values()), tuple(finalists[: settings.top]), choice, wall_s


class Measurer:
    """Compiles and measures kernels of a space on one problem, one at a time; `rows` are by index, in order."""

    def __init__(
        self,
        driver: Driver,
        worker: JobRunner,
        problem: str,
        space: KernelSpace,
        surrogate: Surrogate,
        run: RunRecord,
        journal: JournalWriter,
        advance: Callable[[int, str], None],
    ) -> None:
        self.rows: dict[int, ResultRow] = {}
        self._driver, self._worker, self._problem = driver, worker, problem
        self._space, self._surrogate = space, surrogate
        self._run, self._journal, self._advance = run, journal, advance
        self._made: dict[Kernel, Built] = {}
        self._built: dict[str, Built] = {}
        self._best_ms = 0.0

    def measure(self, index: int) -> float | None:
        """Measure a kernel, write its row to the journal, and return its time in ms, None if it failed."""
        kernel = self._space.kernels[index]
        built = self._build(kernel)
        setup = on_problem(self._problem, self._best_ms * NS_PER_MS)
        replies = [reply for _, reply in measure(self._worker, setup, [built], self._run.samples)]
        if not replies:
            raise StoppedError
        self.rows[index] = row = self._row(full_name(kernel), replies[0], built)
        self._journal.add(row)
        if row.latency_ms:
            self._best_ms = min(self._best_ms or row.latency_ms, row.latency_ms)
        self._advance(1, f"best {self._best_ms:.4g} ms" if self._best_ms else "")
        return row.latency_ms

    def compare(
        self, rows: Sequence[ResultRow], rounds: int, seed: int, should_stop: Callable[[], bool]
    ) -> list[ResultRow]:
        """Remeasure kernels in rounds; returns the journalled rows that replace theirs, fastest first."""
        kernels = [(self._built[row.kernel].library, row.loops) for row in rows]
        setup = on_problem(self._problem, self._best_ms * NS_PER_MS)
        with self._driver.worker(should_stop=should_stop) as worker:
            replies = time_in_rounds(worker, setup, kernels, rounds, f"{seed} best {self._problem}")
        if replies is None:
            raise StoppedError
        again = [
            structs.replace(self._row(row.kernel, reply, self._built[row.kernel]), remeasured=True)
            for row, reply in zip(rows, replies, strict=True)
        ]
        self._journal.add(*again)
        return sorted((row for row in again if row.latency_ms), key=lambda row: row.latency_ms or 0.0)

    def _build(self, kernel: Kernel) -> Built:
        """Compile a kernel unless it is compiled, and with it kernels that the surrogate will probably propose."""
        if kernel not in self._made:
            jobs = self._driver.jobs
            ahead = [self._space.kernels[index] for index in self._surrogate.ahead(_LOOK_AHEAD * jobs)]
            others = [proposed for proposed in ahead if proposed not in self._made]
            self._made |= self._driver.build([kernel, *others[: jobs - 1]])
        if kernel not in self._made:
            raise StoppedError
        built = self._built[full_name(kernel)] = self._made[kernel]
        if built.binary is not None:
            report = (built.binary.resources, built.binary.calling)
            self._journal.add_kernels([KernelRecord(self._run.run_id, built.source_hash, built.code_hash, *report)])
        return built

    def _row(self, kernel: str, reply: Reply, built: Built) -> ResultRow:
        possible = self._driver.possible(reply, self._problem)
        row = result_row(self._run.run_id, self._problem, kernel, possible, built)
        return structs.replace(row, node=self._worker.node)


def _record(identity: DeviceIdentity, problem: Problem, settings: SearchSettings) -> RunRecord:
    op = operation_of_problem(problem)
    recorded = Settings(
        op=op.name,
        variant=str(problem.variant) if op.has_directions else "",  # type: ignore[attr-defined]
        problems=problem.canonical(),
        kernels=f"{SEARCH}surrogate",
        dtype=problem.dtype,
        seed=settings.seed,
        samples=settings.samples,
        cold=bool(settings.cold),
        rotating=int(settings.cold is not None or identity.kind != HIP_KIND),
    )
    return new_record(identity, recorded)
