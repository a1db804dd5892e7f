"""Watching the machine while it measures: one kernel on one problem, timed first, every minute, and at the end.

Its time says whether the device still is what it was: a clock that throttles, other work on the machine, heat. So the
problem is one that computes rather than waits for memory or launches. What was measured between two looks, of which the
second is more than 5 % from the first of all, is suspect and measured again. A run before the first look is no look: a
device that was idle is not what it is at work.
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
from ckh.bench.supervision.journal_rows import NS_PER_MS
from ckh.bench.supervision.runner import measure, on_problem
from ckh.data.journal_records import ReferenceRecord
from ckh.hardware.machine import machine_name
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.planning.plan import Task
    from ckh.bench.supervision.protocol import Card
    from ckh.bench.supervision.runner import JobRunner
    from ckh.data.journal import JournalWriter

EVERY_S = 60.0
DRIFT = 0.05  # of the reference's time: more than its own spread
LEAST_PAIRS = 200  # of a run that is watched: one of fewer ends soon
# The most that the problem computes: some tens of microseconds of a GPU, and a look checks the result on the host too.
MAX_FLOPS = {HOST_KIND: 1e9}
_MAX_GPU_FLOPS = 1e10
AGAIN_SHARE = 0.1  # of the time of measuring, which measuring again may take


def by_computing(tasks: Sequence[Task], kind: str) -> list[Task]:
    """Tasks of a kind of device, those first whose problem computes most for each byte and does not take long."""
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
    """The state of one worker: times of the reference in ms, when the last was, and tasks measured since."""

    first_ms: float = 0.0
    last_s: float = float("-inf")
    since: list[Task] = field(default_factory=list)


class ReferenceWatch:
    """Times the reference kernel with each worker when it is due, and collects what was measured while it drifted.

    Args:
        run_id: of the run.
        journal: where each look goes.
        tasks: how many are measured.
        workers: how many measure them.
        problem: canonical text of a problem.
        built: a kernel for it that could be built.
        kernel: its name.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        run_id: str,
        journal: JournalWriter,
        tasks: int,
        workers: int,
        problem: str,
        built: Built,
        kernel: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_id = run_id
        self._journal = journal
        self._left = tasks
        self._workers = workers
        self._problem = problem
        self._built = built
        self._kernel = kernel
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._lock = threading.Lock()
        self.looks: list[ReferenceRecord] = []
        self.suspects: list[Task] = []

    def before(self, worker: JobRunner, task: Task) -> None:
        """Look at the machine if a minute has passed, before a task is measured."""
        self._look(worker, EVERY_S)
        with self._lock:
            self._seen[id(worker)].since.append(task)

    def after(self, worker: JobRunner) -> None:
        """Look once more behind the last task of each worker: what was measured last would be between no two looks."""
        with self._lock:
            self._left -= 1
            is_last = self._left < self._workers
        if is_last:
            self.last(worker)

    def last(self, worker: JobRunner) -> None:
        """Look once more, whenever the last look was."""
        self._look(worker, 0.0)

    def _look(self, worker: JobRunner, every_s: float) -> None:
        with self._lock:
            seen = self._seen.setdefault(id(worker), _Seen())
        if self._clock() - seen.last_s < every_s:
            return
        if not seen.first_ms:
            self._times(worker)
        times, card = self._times(worker)
        seen.last_s = self._clock()
        if not times:
            return  # stopped, or the kernel fails here: nothing is known
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
        """Times of the reference in ns, and what the GPU's sensors showed; empty if it fails here, or was stopped."""
        replies = [reply for _, reply in measure(worker, on_problem(self._problem), [self._built], DEFAULT_SAMPLES)]
        good = [reply for reply in replies if reply.status is Status.OK]
        cards = (reply.card or {} for reply in good)
        return [sample for reply in good for sample in reply.samples_ns], next(cards, {})
