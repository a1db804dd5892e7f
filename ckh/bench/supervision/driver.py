"""`Driver`: builds kernels and runs them in workers, for every command that measures.

Work leaves this process through two methods. `build` compiles by content: each distinct source is compiled once,
wherever that is. `worker` is one device: all candidates of a problem are measured by the same device, so that their
times compare. Only the caller makes rows and writes the journal.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from ckh.bench.compilation.binary import Binary
from ckh.bench.compilation.compile import KernelBuilder, default_jobs
from ckh.bench.devices.device import HIP_KIND
from ckh.bench.isolated.timing import DEFAULT_SAMPLES
from ckh.bench.supervision.limits import BenchLimits, Stop
from ckh.bench.supervision.protocol import Job, Op, Phase, Reply, device_name
from ckh.bench.supervision.runner import below_peak, measure, on_problem, with_times
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.errors import CkhError
from ckh.hardware.machine import machine_name
from ckh.schema import Status
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device, DeviceIdentity
    from ckh.bench.supervision.protocol import WorkerConfig
    from ckh.bench.supervision.reference_watch import Alike
    from ckh.bench.supervision.runner import JobRunner
    from ckh.ops.base import Kernel
    from ckh.schema import Resources


COMPILE_PHASE = "compile"
NO_PROBLEM_LEFT = "no problem left"  # of a worker, while others measure their last ones
T = TypeVar("T")
_LOAD_TIMEOUT_S = 60.0


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
        self.worker_s: dict[str, dict[str, float]] = {}  # seconds of each worker by phase
        self.restarts = 0
        self._lock, self._choosing = threading.Lock(), threading.Lock()

    @cached_property
    def _builder(self) -> KernelBuilder:
        return KernelBuilder(self.device, self.limits.compile_timeout_s)

    @property
    def identity(self) -> DeviceIdentity:
        """Identity of the measuring device."""
        return self.device.identity()

    def possible(self, reply: Reply, problem: str) -> Reply:
        """The reply, or the reason why its time is impossible, unless such times are to be taken as they are."""
        return reply if self.limits.no_peak_check else below_peak(reply, problem, self.identity)

    def build(self, kernels: Sequence[Kernel], title: str = "", jobs: int | None = None) -> dict[Kernel, Built]:
        """Build kernels; those not reached when stopped are omitted. A title enables a progress bar."""
        start = time.monotonic()
        distinct = list(dict.fromkeys(kernels))
        shown = progress(title, len(distinct)) if title else nullcontext(lambda _steps, _text: None)
        try:
            with shown as advance:
                return self._builder.build(distinct, jobs or self.jobs, advance, self.should_stop)
        finally:
            self.phase_s[COMPILE_PHASE] += time.monotonic() - start

    def begin_build(self, kernels: Sequence[Kernel]) -> Callable[[], dict[Kernel, Built]]:
        """Build kernels while GPUs measure, with a core left to each of their workers; returns a function that waits.

        Where the CPU is what is measured, or nodes compile, they are built when that is called.
        """
        if self.is_spread or any(config.kind != HIP_KIND for config in self.configs):
            return lambda: self.build(kernels)
        built: Future[dict[Kernel, Built]] = Future()

        def run() -> None:
            try:
                built.set_result(self.build(kernels, jobs=max(1, self.jobs - len(self.configs))))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                built.set_exception(error)

        threading.Thread(target=run, daemon=True).start()  # a second Ctrl-C does not wait for compilers
        return built.result

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

        ended: dict[str, float] = {}

        def run_tasks(config: WorkerConfig) -> None:
            with self.worker(config, should_stop=is_over) as supervisor:
                while not is_over():
                    with self._choosing:
                        task = choose(supervisor.node)
                    if task is None:
                        ended[supervisor.node] = time.monotonic()
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
        for node, at in ended.items():
            _add(self.worker_s.setdefault(node, {}), {NO_PROBLEM_LEFT: time.monotonic() - at})
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
        for seconds in (self.phase_s, self.worker_s.setdefault(runner.node, {})):
            _add(seconds, runner.phase_s)
        self.restarts += max(runner.restarts, 0)


_USES = {
    "measuring": (Phase.LOAD, Phase.RUN, Phase.CALIBRATE, Phase.TIME),
    "checking results": (Phase.VERIFY,),
    "waiting for inputs and references": (Phase.INPUTS, Phase.REFERENCE),
    "no problem left": (NO_PROBLEM_LEFT,),
}
COMPILING, OTHER = "waiting for compilers", "other"


def uses_of(phase_s: Mapping[str, float], compile_s: float, wall_s: float) -> dict[str, float]:
    """Seconds of a worker by what it did or waited for, in a run of `wall_s`, `compile_s` of which compiled."""
    uses = {use: sum(phase_s.get(phase, 0.0) for phase in phases) for use, phases in _USES.items()}
    uses[COMPILING] = compile_s
    return {**uses, OTHER: max(0.0, wall_s - sum(uses.values()))}


def _add(seconds: dict[str, float], more: Mapping[str, float]) -> None:
    for phase, spent_s in more.items():
        seconds[phase] = seconds.get(phase, 0.0) + spent_s


@dataclass(frozen=True, slots=True)
class BuildReport:
    """Result of building a kernel."""

    status: Status
    message: str
    """Reason why the status is not ok."""
    library: str
    """Library file; empty if there is none."""
    resources: Resources | None
    """Resource usage reported by the compiler."""
    calling: int | None
    """GPU functions that call others; null: unknown."""


def build_and_load(driver: Driver, kernels: Sequence[Kernel]) -> dict[Kernel, BuildReport]:
    """Compile kernels and load each library in a worker; kernels not reached when stopped are omitted."""
    built = driver.build(kernels, "compiling kernels")
    loaded = _load_all(driver, [build.library for build in built.values() if build.status is Status.OK])
    reports: dict[Kernel, BuildReport] = {}
    for kernel, build in built.items():
        if build.status is Status.OK and build.library not in loaded:
            continue  # stopped before
        last = loaded.get(build.library, build)
        binary = build.binary or Binary("", None)
        reports[kernel] = BuildReport(last.status, last.message, build.library, binary.resources, binary.calling)
    return reports


def _load_all(driver: Driver, libraries: Sequence[str]) -> dict[str, Reply]:
    """Load each library; a library that crashes the worker does not affect the others."""
    config = replace(driver.configs[0], load_only=True)
    replies: dict[str, Reply] = {}
    with (
        driver.worker(config, timeout_s=_LOAD_TIMEOUT_S, should_stop=lambda: False) as worker,
        progress("loading kernels", len(libraries)) as advance,
    ):
        for library in dict.fromkeys(libraries):
            if driver.should_stop():
                break
            ((_, reply),) = worker.run(None, [Job(Op.LOAD, 0, library=library)])
            where = "when it was loaded: " if reply.status in (Status.CRASH, Status.TIMEOUT) else ""
            replies[library] = replace(reply, message="" if reply.status is Status.OK else where + reply.message)
            advance(1, "")
    return replies


def time_in_rounds(
    runner: JobRunner, setup: Job, kernels: Sequence[tuple[str, int]], rounds: int, seed: str
) -> list[Reply] | None:
    """One reply for each (library, loops): the samples of all rounds, or the first failure. None if stopped early."""
    order = random.Random(seed)
    jobs: list[Job] = []
    for _ in range(rounds):
        turn = list(enumerate(kernels))
        order.shuffle(turn)
        jobs += [Job(Op.TIME, i, library=library, samples=1, loops=loops) for i, (library, loops) in turn]
    replies: list[list[Reply]] = [[] for _ in kernels]
    for job, reply in runner.run(setup, jobs):
        replies[job.id].append(reply)
    if any(len(of_one) < rounds for of_one in replies):
        return None
    joined: list[Reply] = []
    for of_one in replies:
        timed = [with_times(reply) for reply in of_one]
        samples_ns = tuple(sample for reply in timed for sample in reply.samples_ns)
        failure = next((reply for reply in timed if reply.status is not Status.OK), None)
        joined.append(failure or replace(timed[-1], samples_ns=samples_ns))
    return joined


def interleaved(worker: JobRunner, problem: str, units: Sequence[Built], rounds: int) -> list[Reply] | None:
    """Check built kernels on a problem and time them in rounds; one reply for each, None if stopped early."""
    setup = on_problem(problem)
    replies = dict(measure(worker, setup, units, samples=1))
    good = [number for number, reply in replies.items() if reply.status is Status.OK]
    timed = time_in_rounds(
        worker, setup, [(units[number].library, replies[number].loops) for number in good], rounds, problem
    )
    if len(replies) < len(units) or timed is None:
        return None
    replies |= dict(zip(good, timed, strict=True))
    return [replies[number] for number in range(len(units))]


def measure_interleaved(
    driver: Driver, tasks: Mapping[str, Sequence[Kernel]], rounds: int
) -> Iterator[tuple[str, list[Reply]]]:
    """Check and time the kernels of each problem, given by its canonical string.

    Replies are in the order of the kernels. When stopped, ends early with the problems finished so far.
    """
    built = driver.build([kernel for kernels in tasks.values() for kernel in kernels])
    with driver.worker() as worker:
        for problem, kernels in tasks.items():
            if any(kernel not in built for kernel in kernels):
                return
            replies = interleaved(worker, problem, [built[kernel] for kernel in kernels], rounds)
            if replies is None:
                return
            yield problem, [driver.possible(reply, problem) for reply in replies]


def compare_kernels(
    device: Device,
    tasks: Mapping[str, Sequence[Kernel]],
    timeout_s: float,
    title: str,
    take: Callable[[str, list[Reply]], None],
) -> None:
    """Run `measure_interleaved` with a progress bar and Ctrl-C; `take` gets each problem's replies at once."""
    with Stop() as stop, progress(title, len(tasks)) as advance:
        driver = Driver(device, BenchLimits(timeout_s=timeout_s), stop)
        for problem, replies in measure_interleaved(driver, tasks, DEFAULT_SAMPLES):
            take(problem, replies)
            advance(1, problem)
        if stop():
            raise KeyboardInterrupt


def in_order(tasks: Iterable[T]) -> Callable[[str], T | None]:
    """Task source for `Driver.serve` that returns tasks in order, for any device."""
    left = iter(tasks)
    return lambda _node: next(left, None)


class BegunTasks(Generic[T]):
    """Tasks in order; one that a device has begun is continued there, or on another device if that one is missing."""

    def __init__(self, tasks: Iterable[tuple[T, str | None]], is_here: Callable[[str], bool]) -> None:
        self._new: deque[T] = deque()
        self._begun: dict[str, deque[T]] = {}
        self._is_here = is_here
        for task, device in tasks:
            (self._new if device is None else self._begun.setdefault(device, deque())).append(task)

    def next(self, device: str) -> T | None:
        """Next task of a device; None if there is none for it."""
        if own := self._begun.get(device):
            return own.popleft()
        if self._new:
            return self._new.popleft()
        left = (tasks for name, tasks in self._begun.items() if tasks and not self._is_here(name))
        return tasks.popleft() if (tasks := next(left, None)) is not None else None
