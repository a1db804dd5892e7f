"""Check that devices measuring for one journal are equally fast, by the time of a reference kernel on each.

All devices of a run are compared with each other and with those of the runs that it continues, as recorded in the
journal.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ckh.bench.devices.device import HOST_KIND
from ckh.bench.isolated.timing import DEFAULT_SAMPLES
from ckh.bench.supervision.journal_rows import NS_PER_MS
from ckh.bench.supervision.runner import measure
from ckh.errors import DeviceError
from ckh.schema import Status
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ckh.bench.compilation.compile import Built
    from ckh.bench.supervision.protocol import Job
    from ckh.bench.supervision.runner import JobRunner

DEVICE_RATIO = {HOST_KIND: 1.5}  # maximum ratio to the fastest device; for GPUs see below
_DEVICE_RATIO = 1.05
_ROUNDS = 3  # rounds of the reference kernel on each device


@dataclass(frozen=True, slots=True)
class Reference:
    """A (kernel, problem) pair to compare devices by.

    Attributes:
        setup: the problem.
        built: the kernel.
        earlier: its times in ms on the devices of earlier runs, by name.
        seen: called with a device's name and time, for the journal.
    """

    setup: Job
    built: Built
    earlier: dict[str, float]
    seen: Callable[[str, float], None]


class Alike:
    """The devices that measure for a journal, with the time of a reference kernel on each.

    Args:
        kind: kind of the devices.
        reference: the kernel.
    """

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
        """Refuse to mix devices of different speed.

        Raises:
            DeviceError: a device is too much slower than the fastest one.
        """
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
