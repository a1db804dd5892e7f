"""The reference kernel: one kernel on one problem, which compares devices and detects drift of the machine.

All devices of a run are compared with each other and with those of the runs that it continues, as recorded in the
journal.

On each device the kernel is timed at the start, every minute, and at the end. Its time changes with the state of the
device: clock throttling, other load on the machine, heat. The problem is therefore compute-bound rather than bound by
memory or launches. Pairs measured between two reference measurements, the second of which differs by more than 5 % from
the very first, are suspect and measured again. A preliminary run does not count: an idle device differs from a busy
one.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from ckh.bench.devices.device import HOST_KIND
from ckh.bench.isolated.sensors import Sensors, read_sensors
from ckh.bench.isolated.timing import DEFAULT_SAMPLES
from ckh.bench.supervision.runner import NS_PER_MS, measure, on_problem
from ckh.data.journal_records import ReferenceRecord
from ckh.errors import DeviceError
from ckh.hardware.machine import machine_name
from ckh.schema import Status
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.planning.plan import Task
    from ckh.bench.supervision.protocol import Card, Job
    from ckh.bench.supervision.runner import JobRunner
    from ckh.data.journal import JournalWriter


DEVICE_RATIO = {HOST_KIND: 1.5}  # maximum ratio to the fastest device; for GPUs see below
_DEVICE_RATIO = 1.05
_ROUNDS = 3  # rounds of the reference kernel on each device


@dataclass(frozen=True, slots=True)
class Reference:
    """A (kernel, problem) pair to compare devices by."""

    setup: Job
    built: Built
    earlier: dict[str, float]  # times in ms on the devices of earlier runs, by name
    seen: Callable[[str, float], None]  # called with a device's name and time, for the journal


class Alike:
    """The devices that measure for a journal, with the time of a reference kernel on each."""

    def __init__(self, kind: str, reference: Reference) -> None:
        self._reference = reference
        self._allowed = DEVICE_RATIO.get(kind, _DEVICE_RATIO)
        self.times = {f"{name or 'the device'} of an earlier run": ms for name, ms in reference.earlier.items()}

    def is_earlier(self, names: Collection[str]) -> bool:
        """True if earlier runs had no devices besides these."""
        return self._reference.earlier.keys() <= set(names)

    def time(self, runner: JobRunner) -> float | None:
        """Time the reference kernel on a device, in ms; None if it fails there, or was stopped."""
        reference = self._reference
        replies = [
            reply
            for _ in range(_ROUNDS)
            for _, reply in measure(runner, reference.setup, [reference.built], DEFAULT_SAMPLES)
        ]
        samples = [sample for reply in replies if reply.status is Status.OK for sample in reply.samples_ns]
        return median(samples) / NS_PER_MS if samples else None

    def add(self, runner: JobRunner) -> None:
        """Time the reference kernel on a device that is to measure."""
        if (ms := self.time(runner)) is not None:
            self._keep(runner.node, ms)

    def require(self) -> None:
        """Refuse to mix devices of different speed."""
        if len(self.times) <= 1:
            return
        fastest, slowest = min(self.times, key=self.times.__getitem__), max(self.times, key=self.times.__getitem__)
        ratio = self.times[slowest] / self.times[fastest]
        if ratio > self._allowed:
            raise DeviceError(
                f"{slowest} takes {ratio:.2f} times as long as {fastest} for the same kernel, {self._allowed:g} are "
                "allowed",
                "omit that device, find what slows it down, or choose another --out",
                code="nodes-differ",
            )
        note(f"{len(self.times)} devices differ by {ratio - 1:.1%} on a reference kernel")

    def admits(self, runner: JobRunner) -> bool:
        """True if a device that joined during the run is as fast as those compared."""
        if not self.times or runner.node in self.times:
            return True
        ms = self.time(runner)
        ratio = 0.0 if ms is None else max(ms, *self.times.values()) / min(ms, *self.times.values())
        if ms is not None and ratio <= self._allowed:
            self._keep(runner.node, ms)
            return True
        note(
            f"{runner.node} is left out: a reference kernel differs {ratio:.2f} times between it and the others, "
            f"{self._allowed:g} are allowed"
        )
        return False

    def _keep(self, name: str, ms: float) -> None:
        self.times[name] = ms
        self._reference.seen(name, ms)


EVERY_S = 60.0
DRIFT = 0.05  # relative change of the reference time, above its own spread
LEAST_PAIRS = 200  # minimum pairs of a monitored run; shorter runs end soon
# Maximum operations of the problem: some tens of microseconds on a GPU, as the result is also checked on the host.
MAX_FLOPS = {HOST_KIND: 1e9}
_MAX_GPU_FLOPS = 1e10
AGAIN_SHARE = 0.1  # maximum share of the measuring time for remeasuring


def by_computing(tasks: Sequence[Task], kind: str) -> list[Task]:
    """Tasks of a kind of device, by decreasing arithmetic intensity, those that are too long last."""
    most = MAX_FLOPS.get(kind, _MAX_GPU_FLOPS)
    return sorted(
        tasks,
        key=lambda task: (
            max(task.problem.flops, most),
            -task.problem.flops / task.problem.bytes,
            task.problem.canonical(),
        ),
    )


@dataclass(slots=True)
class _Seen:
    """State of one device: reference times in ms, time of the last one, and tasks measured since."""

    first_ms: float = 0.0
    last_s: float = float("-inf")
    since: list[Task] = field(default_factory=list)


class ReferenceWatch:
    """Times the reference kernel on each worker when due, and collects pairs measured during drift."""

    def __init__(
        self,
        run_id: str,
        journal: JournalWriter,
        workers: int,
        problem: str,
        built: Built,
        kernel: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_id = run_id
        self._journal = journal
        self._left = 0
        self._workers = workers
        self._problem = problem
        self._built = built
        self._kernel = kernel
        self._clock = clock
        self._seen: dict[str, _Seen] = {}  # by device
        self._lock = threading.Lock()
        self.looks: list[ReferenceRecord] = []
        self.suspects: list[Task] = []

    def expect(self, tasks: int) -> None:
        """Set the number of tasks that are left, to know each worker's last one."""
        self._left = tasks

    def before(self, worker: JobRunner, task: Task) -> None:
        """Measure the reference before a task, if a minute has passed."""
        self._look(worker, EVERY_S)
        with self._lock:
            self._seen[worker.node].since.append(task)

    def after(self, worker: JobRunner) -> None:
        """Measure the reference after each worker's last task, which thus lies between two measurements."""
        with self._lock:
            self._left -= 1
            is_last = self._left < self._workers
        if is_last:
            self.last(worker)

    def last(self, worker: JobRunner) -> None:
        """Measure the reference, whenever the last measurement was."""
        self._look(worker, 0.0)

    def _look(self, worker: JobRunner, every_s: float) -> None:
        with self._lock:
            seen = self._seen.setdefault(worker.node, _Seen())
        if self._clock() - seen.last_s < every_s:
            return
        if not seen.first_ms:
            self._times(worker)
        times, card = self._times(worker)
        seen.last_s = self._clock()
        if not times:
            return  # stopped, or the kernel fails here: no information
        is_here = not worker.node or worker.node.startswith(f"{machine_name()}/")
        ms, sensors = median(times) / NS_PER_MS, read_sensors() if is_here and not card else Sensors(None, None)
        seen.first_ms = seen.first_ms or ms
        ratio = ms / seen.first_ms
        record = ReferenceRecord(
            self._run_id,
            self._problem,
            self._kernel,
            ms,
            ratio,
            card.get("clock_mhz", sensors.clock_mhz),
            card.get("temperature_c", sensors.temperature_c),
            time.time(),
            worker.node,
        )
        with self._lock:
            self._journal.add_reference(record)
            self.looks.append(record)
            if abs(ratio - 1) > DRIFT:
                self.suspects += seen.since
            seen.since.clear()

    def _times(self, worker: JobRunner) -> tuple[list[float], Card]:
        """Times of the reference in ns, and the GPU's sensor readings; empty if it fails here, or was stopped."""
        replies = [reply for _, reply in measure(worker, on_problem(self._problem), [self._built], DEFAULT_SAMPLES)]
        good = [reply for reply in replies if reply.status is Status.OK]
        cards = (reply.card or {} for reply in good)
        return [sample for reply in good for sample in reply.samples_ns], next(cards, {})
