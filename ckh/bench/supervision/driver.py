"""`Driver`: builds kernels and runs them in workers, for every command that measures.

Work leaves this process through two methods. `build` compiles by content: each distinct source is compiled once,
wherever that is. `worker` is one device: all candidates of a problem are measured by the same device, so that their
times compare. Only the caller makes rows and writes the journal.
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
    from ckh.bench.supervision.limits import BenchLimits
    from ckh.bench.supervision.protocol import WorkerConfig
    from ckh.bench.supervision.reference_watch import Alike
    from ckh.bench.supervision.runner import JobRunner
    from ckh.ops.base import Kernel

COMPILE_PHASE = "compile"
T = TypeVar("T")


class Driver:
    """Builds kernels for a device and runs them in its workers; accumulates the seconds of both by phase.

    With `is_spread`, devices of several machines are used.
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
        """Identity of the measuring device."""
        return self.device.identity()

    def build(self, kernels: Sequence[Kernel], title: str = "") -> dict[Kernel, Built]:
        """Build kernels; those not reached when stopped are omitted. A title enables a progress bar."""
        start = time.monotonic()
        distinct = list(dict.fromkeys(kernels))
        shown = progress(title, len(distinct)) if title else nullcontext(lambda _steps, _text: None)
        try:
            with shown as advance:
                return self._builder.build(distinct, self.jobs, advance, self.should_stop)
        finally:
            self.phase_s[COMPILE_PHASE] += time.monotonic() - start

    def missing(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Kernels to compile: one of each source without a library in the cache."""
        return self._builder.missing(kernels)

    @contextmanager
    def worker(
        self,
        config: WorkerConfig | None = None,
        *,
        timeout_s: float | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Iterator[JobRunner]:
        """A worker, started by its first job; by default of the first configuration, within the driver's limits."""
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
        """Execute each task on the next free worker, one task on one worker; a failure ends all."""
        from joblib import Parallel, delayed

        failures = list[CkhError]()

        def is_over() -> bool:
            return bool(failures) or self.should_stop()

        def run_tasks(config: WorkerConfig) -> None:
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
            run_tasks(self.configs[0])
        else:
            Parallel(n_jobs=len(self.configs), backend="threading")(
                delayed(run_tasks)(config) for config in self.configs
            )
        if failures:
            raise failures[0]

    @property
    def names(self) -> frozenset[str]:
        """Names of the measuring devices, as in rows."""
        return frozenset(map(self._name, self.configs))

    def _name(self, config: WorkerConfig) -> str:
        """Name of a worker's device; empty if there is only one."""
        return "" if len(self.configs) == 1 else device_name(machine_name(), config)

    def require_alike(self, alike: Alike) -> None:
        """Refuse to mix devices of different speed: those of a cluster, and those of earlier runs."""
        self._time(alike)
        alike.require()

    def _time(self, alike: Alike) -> None:
        """Time the reference kernel on devices. Those of one machine are assumed equal."""
        if alike.times and not alike.is_earlier(self.names):
            for config in self.configs:
                with self.worker(config) as runner:
                    alike.add(runner)

    def __enter__(self) -> Driver:  # noqa: PYI034 - Self is not in Python 3.10
        """Start nothing yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End remote processes, if any."""

    def _count(self, runner: JobRunner) -> None:
        for phase, seconds in runner.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += max(runner.restarts, 0)
