"""The anchor of a problem, its first right kernel: checks that all its kernels were measured at one GPU clock.

The worker times the anchor again behind each kernel, in half a millisecond. Kernels behind which it took another time
than it takes now were measured at another clock, and are measured again.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ckh.bench.supervision.protocol import Job, Reply

MOVED = 0.05  # of the anchor's time: more than its own spread
MAX_PASSES = 3  # over the kernels of a problem, which a clock that goes to and fro may have measured again
_LAST_LOOKS = 3  # by whose median other work on the GPU, which disturbs one of them, is no other clock


def with_anchor(setup: Job, library: str, reply: Reply) -> Job:
    """The setup of a problem with its anchor, once a kernel was measured: what that of the next worker is."""
    if setup.library or reply.status is not Status.OK:
        return setup
    return replace(setup, library=library, loops=reply.loops)


class Looks:
    """The anchor's times before and behind each kernel of a problem, given by its name."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, float]] = {}  # in the order in which they were measured
        self._last_ns = 0.0

    def add(self, kernel: str, reply: Reply) -> None:
        """Take in a reply; those without a time of the anchor say nothing."""
        self._looks.pop(kernel, None)
        if reply.anchor_ns:
            before_ns = self._last_ns or median(reply.samples_ns)  # of the anchor itself
            self._looks[kernel] = before_ns, reply.anchor_ns
            self._last_ns = reply.anchor_ns

    def add_rounds(self, kernels: Collection[str], replies: Sequence[Reply]) -> None:
        """Take in replies of kernels that were timed in rounds: at one clock, unless it changed meanwhile."""
        looks = [reply.anchor_ns for reply in replies if reply.anchor_ns]
        if not looks or not self._last_ns:
            return
        behind_ns = median(looks)
        for kernel in [kernel for kernel in self._looks if kernel in kernels]:
            del self._looks[kernel]
            self._looks[kernel] = self._last_ns, behind_ns
        self._last_ns = behind_ns

    def moved(self) -> frozenset[str]:
        """The kernels that were measured at another clock than the last ones, or while it changed."""
        looks = list(self._looks.values())
        if not looks:
            return frozenset()
        now_ns = median(behind for _, behind in looks[-_LAST_LOOKS:])
        return frozenset(name for name, pair in self._looks.items() if any(abs(ns / now_ns - 1) > MOVED for ns in pair))
