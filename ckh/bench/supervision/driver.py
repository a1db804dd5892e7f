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
from typing import TYPE_CHECKING, TypeVar

from ckh.bench.compilation.compile import KernelBuilder, default_jobs
from ckh.bench.supervision.protocol import device_name
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.errors import CkhError
from ckh.hardware.machine import machine_name
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device, DeviceIdentity
    from ckh.bench.supervision.alike import Alike
    from ckh.bench.supervision.limits import BenchLimits
    from ckh.bench.supervision.protocol import WorkerConfig
    from ckh.bench.supervision.runner import JobRunner
    from ckh.ops.base import Kernel

COMPILE_PHASE = "compile"
T = TypeVar("T")


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
        config = config or self.configs[0]
        options = SupervisorOptions(timeout_s or self.limits.timeout_s, config)
        with Supervisor(self.device, options, should_stop or self.should_stop) as supervisor:
            supervisor.node = self._name(config)
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

    @property
    def names(self) -> frozenset[str]:
        """The names of the devices that measure, which rows have."""
        return frozenset(map(self._name, self.configs))

    def _name(self, config: WorkerConfig) -> str:
        """The name of a worker's device; empty where there is but one."""
        return "" if len(self.configs) == 1 else device_name(machine_name(), config)

    def require_alike(self, alike: Alike) -> None:
        """Refuse to mix devices that differ: those of a cluster, and others than an earlier run had.

        Raises:
            DeviceError: one is slower than the fastest by more than is allowed.
        """
        self._time(alike)
        alike.require()

    def _time(self, alike: Alike) -> None:
        """Time the reference kernel with devices. Those of one machine are taken as they are."""
        if alike.times and not alike.is_earlier(self.names):
            for config in self.configs:
                with self.worker(config) as runner:
                    alike.add(runner)

    def __enter__(self) -> Driver:  # noqa: PYI034 - Self is not in Python 3.10
        """Start nothing yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End what runs elsewhere, if anything does."""

    def _count(self, runner: JobRunner) -> None:
        for phase, seconds in runner.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += max(runner.restarts, 0)
