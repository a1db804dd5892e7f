"""Building kernels and having workers run them: what every command that measures does, by one `Driver`.

Its two methods are where work leaves this process. `build` compiles by content: a source of one hash is compiled once,
wherever. `worker` is one device: all candidates of a problem are measured by one, so that their times compare. Rows are
made, and the journal is written, by the caller alone.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from ckh.bench.compile import KernelBuilder, default_jobs
from ckh.bench.protocol import Job, Op, Reply
from ckh.bench.supervisor import Supervisor, SupervisorOptions
from ckh.errors import CkhError
from ckh.progress import progress
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from ckh.bench.compile import Built
    from ckh.bench.device import Device, DeviceIdentity
    from ckh.bench.limits import BenchLimits
    from ckh.bench.protocol import WorkerConfig
    from ckh.ops.base import Kernel

COMPILE_PHASE = "compile"
T = TypeVar("T")


class JobRunner(Protocol):
    """A runner of jobs on one device: a `Supervisor`, or a node's for a cluster.

    Attributes:
        node: which machine and device of a cluster it is; empty: this machine's.
        phase_s: seconds by phase.
        restarts: of the device's process.
    """

    node: str
    phase_s: dict[str, float]
    restarts: int

    def run(self, setup: Job | None, jobs: Sequence[Job], /) -> Iterator[tuple[Job, Reply]]:
        """Do jobs on the problem of `setup`; yields each with its reply, in order, until all are done or stopped."""


class Driver:
    """Builds kernels for a device and runs them in its workers; counts the seconds of both by phase.

    With `is_spread` devices of several machines are served.

    Args:
        device: what kernels are emitted for and run on.
        limits: time of a kernel and of its compiler, and compilers at a time.
        should_stop: called all the time; once it is true, what is left is left out.
        configs: of the workers that may run at a time; None: the device's.
    """

    is_spread = False

    def __init__(
        self,
        device: Device,
        limits: BenchLimits,
        should_stop: Callable[[], bool],
        configs: Sequence[WorkerConfig] | None = None,
    ) -> None:
        self.device = device
        self.limits = limits
        self.should_stop = should_stop
        self.configs = tuple(device.worker_configs() if configs is None else configs)
        self.jobs = limits.jobs or default_jobs(device.job_bytes)
        self.phase_s = {COMPILE_PHASE: 0.0}
        self.restarts = 0
        self._lock, self._choosing = threading.Lock(), threading.Lock()

    @cached_property
    def _builder(self) -> KernelBuilder:
        return self._make_builder()

    def _make_builder(self) -> KernelBuilder:
        return KernelBuilder(self.device, self.limits.compile_timeout_s)

    @property
    def identity(self) -> DeviceIdentity:
        """The identity of the device that measures."""
        return self.device.identity()

    def build(self, kernels: Sequence[Kernel], title: str = "") -> dict[Kernel, Built]:
        """Build kernels; those left when stopped are left out. A title shows progress.

        Raises:
            DeviceError: there is no compiler.
            DataError: the cache cannot be used.
        """
        start = time.monotonic()
        distinct = list(dict.fromkeys(kernels))
        shown = progress(title, len(distinct)) if title else nullcontext(lambda _steps, _text: None)
        try:
            with shown as advance:
                return self._builder.build(distinct, self.jobs, advance, self.should_stop)
        finally:
            self.phase_s[COMPILE_PHASE] += time.monotonic() - start

    @contextmanager
    def worker(
        self,
        config: WorkerConfig | None = None,
        *,
        timeout_s: float | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Iterator[JobRunner]:
        """A worker, which starts with its first job; None: the first configuration, the limits, what stops the others.

        Yields:
            The supervisor, whose `run` raises DeviceError where no worker can be started.
        """
        options = SupervisorOptions(timeout_s or self.limits.timeout_s, config or self.configs[0])
        with Supervisor(self.device, options, should_stop or self.should_stop) as supervisor:
            try:
                yield supervisor
            finally:
                with self._lock:
                    self._count(supervisor)

    def serve(self, choose: Callable[[str], T | None], work: Callable[[JobRunner, T], None]) -> None:
        """Do each task with the next worker that is free, all of it with the same one; a failure ends all.

        Args:
            choose: what a device, given by its node's name, is to do next; None: nothing more.
            work: does a task with a worker; called by several threads.

        Raises:
            CkhError: what `work` raised first.
        """
        from joblib import Parallel, delayed

        failures = list[CkhError]()

        def is_over() -> bool:
            return bool(failures) or self.should_stop()

        def one(config: WorkerConfig) -> None:
            with self.worker(config, should_stop=is_over) as supervisor:
                while not is_over():
                    with self._choosing:
                        task = choose(supervisor.node)
                    if task is None:
                        return
                    try:
                        work(supervisor, task)
                    except CkhError as error:
                        failures.append(error)

        if len(self.configs) == 1:
            one(self.configs[0])
        else:
            Parallel(n_jobs=len(self.configs), backend="threading")(delayed(one)(config) for config in self.configs)
        if failures:
            raise failures[0]

    def require_alike(self, setup: Job, built: Sequence[Built]) -> None:
        """Refuse devices of a cluster that differ; those of one machine are taken as they are."""

    def __enter__(self) -> Driver:  # noqa: PYI034 - Self is not in Python 3.10
        """Start nothing yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End what runs elsewhere, if anything does."""

    def _count(self, runner: JobRunner) -> None:
        for phase, seconds in runner.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += max(runner.restarts, 0)


def in_order(tasks: Iterable[T]) -> Callable[[str], T | None]:
    """What `Driver.serve` chooses by where tasks are done in their order, by whatever device."""
    left = iter(tasks)
    return lambda _node: next(left, None)


def on_problem(problem: str, best_ns: float = 0.0) -> Job:
    """The job that sets a problem up, of which a time is known, or none (0)."""
    return Job(Op.PROBLEM, -1, problem=problem, best_ns=best_ns)


def measure(runner: JobRunner, setup: Job, built: Sequence[Built], samples: int) -> Iterator[tuple[int, Reply]]:
    """Measure kernels on the problem of `setup`; yields each one's number and reply, first those not built."""
    found = [number for number, one in enumerate(built) if one.status is Status.OK]
    for number, one in enumerate(built):
        if one.status is not Status.OK:
            yield number, Reply(number, one.status, one.message)
    jobs = [Job(Op.MEASURE, number, library=built[number].library, samples=samples) for number in found]
    for job, reply in runner.run(setup, jobs):
        yield job.id, reply
