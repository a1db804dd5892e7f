"""Measuring single kernels of one problem on a device, each result journalled at once.

While a search waits for a compiler, others compile what it will probably ask for next: nothing is compiled while a
kernel is timed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.bench.compile import KernelBuilder, default_jobs
from ckh.bench.limits import DEFAULT_COMPILE_TIMEOUT_S
from ckh.bench.plan import full_name
from ckh.bench.protocol import Job, Op, Reply
from ckh.bench.rounds import time_in_rounds
from ckh.bench.rows import NS_PER_MS, result_row
from ckh.bench.supervisor import Supervisor, SupervisorOptions
from ckh.bench.sweep import COMPILE_PHASE
from ckh.bench.timing import DEFAULT_SAMPLES
from ckh.data.journal import KernelRecord
from ckh.schema import MEASURED, Status
from ckh.search.run import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from ckh.bench.compile import Built
    from ckh.bench.device import Device
    from ckh.data.journal import JournalWriter, ResultRow
    from ckh.ops.base import Kernel


_LOOK_AHEAD = 4  # how many times more expected kernels are asked for than compilers run: some are compiled already


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How each kernel is measured: samples, its longest time and its compiler's in seconds, whether caches are emptied.

    The device empties the caches; `cold` is what the journal says of it. `jobs` is how many compilers run at a time;
    None: one a core, as far as the memory goes.
    """

    samples: int = DEFAULT_SAMPLES
    timeout_s: float = 30.0
    compile_timeout_s: float = DEFAULT_COMPILE_TIMEOUT_S
    cold: bool = False
    jobs: int | None = None


class Measurer:
    """Compiles and measures kernels on one problem, one at a time, in a worker of its own. Use it as a context manager.

    Args:
        device: what they are emitted for and run on.
        problem: its canonical text.
        run_id: of the run's record, in the journal already.
        journal: where every result goes.
        options: limits.
        should_stop: called again and again; once it is true, measuring raises `StoppedError`.
    """

    def __init__(
        self,
        device: Device,
        problem: str,
        run_id: str,
        journal: JournalWriter,
        options: MeasureOptions,
        should_stop: Callable[[], bool],
    ) -> None:
        self._device = device
        self._builder = KernelBuilder(device, options.compile_timeout_s)
        self._problem = problem
        self._run_id = run_id
        self._journal = journal
        self._options = options
        self._should_stop = should_stop
        self._limits = SupervisorOptions(options.timeout_s, device.worker_configs()[0])
        self._supervisor = Supervisor(device, self._limits, should_stop)
        self._jobs = options.jobs or default_jobs(device.job_bytes)
        self._made: dict[Kernel, Built] = {}
        self._built: dict[str, Built] = {}
        self._best_ns = 0.0
        self.phase_s: dict[str, float] = {COMPILE_PHASE: 0.0}

    def __enter__(self) -> Measurer:  # noqa: PYI034 - Self is not in Python 3.10
        """Start nothing yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the worker."""
        self._supervisor.__exit__(kind, error, at)
        self._count(self._supervisor)

    def measure(self, kernel: Kernel, ahead: Callable[[int], Sequence[Kernel]] = lambda _count: ()) -> ResultRow:
        """What became of a kernel, which is in the journal then.

        Args:
            kernel: what is measured.
            ahead: at most so many kernels that are probably measured next; called when this one must be compiled.

        Raises:
            StoppedError: it was stopped before there was a result.
            DeviceError: the compiler or the worker cannot be started.
            OutputError: the journal cannot be written.
        """
        name, built = full_name(kernel), self._build(kernel, ahead)
        reply: Reply | None = Reply(0, built.status, built.message)
        if built.status is Status.OK:
            job = Job(Op.MEASURE, 0, library=built.library, samples=self._options.samples)
            reply = next((reply for _, reply in self._supervisor.run(self._setup(), [job])), None)
        if reply is None:
            raise StoppedError
        row = self._row(name, reply, built)
        self._journal.add(row)
        if row.status in MEASURED and row.latency_ms:
            time_ns = row.latency_ms * NS_PER_MS
            self._best_ns = min(self._best_ns or time_ns, time_ns)
        return row

    def compare(
        self, rows: Sequence[ResultRow], rounds: int, seed: int, should_stop: Callable[[], bool]
    ) -> list[ResultRow]:
        """Time measured kernels again, in turns; the rows that replace theirs, in the journal, fastest first.

        Args:
            rows: of kernels that this measured, with times.
            rounds: how often each is timed.
            seed: of their order.
            should_stop: called instead of the one that measuring has.

        Raises:
            StoppedError: it was stopped before all was done.
            DeviceError: the worker cannot be started.
            OutputError: the journal cannot be written.
        """
        kernels = [(self._built[row.kernel].library, row.loops) for row in rows]
        with Supervisor(self._device, self._limits, should_stop) as supervisor:
            replies = time_in_rounds(supervisor, self._setup(), kernels, rounds, f"{seed} best {self._problem}")
        self._count(supervisor)
        if replies is None:
            raise StoppedError
        again = [
            replace(self._row(row.kernel, reply, self._built[row.kernel]), remeasured=True)
            for row, reply in zip(rows, replies, strict=True)
        ]
        self._journal.add(*again)
        return sorted((row for row in again if row.latency_ms), key=lambda row: row.latency_ms or 0.0)

    def _count(self, supervisor: Supervisor) -> None:
        for phase, seconds in supervisor.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds

    def _setup(self) -> Job:
        return Job(Op.PROBLEM, -1, problem=self._problem, best_ns=self._best_ns)

    def _build(self, kernel: Kernel, ahead: Callable[[int], Sequence[Kernel]]) -> Built:
        if kernel not in self._made:
            start = time.monotonic()
            others = [other for other in ahead(_LOOK_AHEAD * self._jobs) if other not in self._made]
            together = [kernel, *others[: self._jobs - 1]]
            self._made |= self._builder.build(together, self._jobs, lambda _steps, _text: None, self._should_stop)
            self.phase_s[COMPILE_PHASE] += time.monotonic() - start
        if kernel not in self._made:
            raise StoppedError
        built = self._made[kernel]
        self._built[full_name(kernel)] = built
        if built.binary is not None:
            resources = built.binary.resources
            self._journal.add_kernels([KernelRecord(self._run_id, built.source_hash, built.code_hash, resources)])
        return built

    def _row(self, kernel: str, reply: Reply, built: Built) -> ResultRow:
        return result_row(self._run_id, self._problem, kernel, reply, built)
