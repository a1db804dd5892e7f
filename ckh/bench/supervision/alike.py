"""Devices that measure for one journal are alike: a reference kernel has to take about as long on each of them.

Compared are all devices of a run, and those of the runs that it goes on with, by what the journal says of them.
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

DEVICE_RATIO = {HOST_KIND: 1.5}  # how many times slower than the fastest one a device may be; GPUs: below
_DEVICE_RATIO = 1.05
_ROUNDS = 3  # of the reference kernel on each device


@dataclass(frozen=True, slots=True)
class Reference:
    """A kernel on a problem by which devices are compared.

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
    """The devices that measure for a journal, by the time of a reference kernel on each.

    Args:
        kind: of the devices.
        reference: the kernel.
    """

    def __init__(self, kind: str, reference: Reference) -> None:
        self._reference = reference
        self._allowed = DEVICE_RATIO.get(kind, _DEVICE_RATIO)
        self.times = {f"{name or 'the device'} of an earlier run": ms for name, ms in reference.earlier.items()}

    def is_earlier(self, names: Collection[str]) -> bool:
        """True if earlier runs had no other devices than these."""
        return self._reference.earlier.keys() <= set(names)

    def time(self, runner: JobRunner) -> float | None:
        """Time the reference kernel with a device, in ms; None if it gives no time there, or was stopped."""
        one = self._reference
        replies = [
            reply for _ in range(_ROUNDS) for _, reply in measure(runner, one.setup, [one.built], DEFAULT_SAMPLES)
        ]
        samples = [sample for reply in replies if reply.status is Status.OK for sample in reply.samples_ns]
        return median(samples) / NS_PER_MS if samples else None

    def add(self, runner: JobRunner) -> None:
        """Time it with a device that is to measure."""
        if (ms := self.time(runner)) is not None:
            self._keep(runner.node, ms)

    def require(self) -> None:
        """Refuse to mix devices that differ.

        Raises:
            DeviceError: one is slower than the fastest by more than is allowed.
        """
        if len(self.times) <= 1:
            return
        fastest, slowest = min(self.times, key=self.times.__getitem__), max(self.times, key=self.times.__getitem__)
        ratio = self.times[slowest] / self.times[fastest]
        if ratio > self._allowed:
            raise DeviceError(
                f"{slowest} takes {ratio:.2f} times as long as {fastest} for the same kernel, {self._allowed:g} are "
                "allowed",
                "leave it out, find out what slows it, or choose another --out",
                code="nodes-differ",
            )
        note(f"{len(self.times)} devices differ by {ratio - 1:.1%} on a reference kernel")

    def admits(self, runner: JobRunner) -> bool:
        """True if a device that came while the run lasts measures as those that were compared."""
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
