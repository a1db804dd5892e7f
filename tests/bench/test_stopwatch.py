"""Timing of kernels on a simulated GPU: its clock rises when it is busy, and launches take host time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from ckh.bench.isolated import timing
from ckh.bench.isolated.kernel_library import BY_GRAPH, OF_NOTHING
from ckh.bench.isolated.timing import Launching, Stopwatch

if TYPE_CHECKING:
    from ckh.bench.isolated.kernel_library import KernelLibrary
    from ckh.bench.isolated.memory import Memory

LAUNCH_NS, GAP_NS = 4000.0, 1500.0  # of the host, launch by launch; of a graph


@dataclass
class Gpu:
    """A GPU at half its clock until it was busy for `ramp_ns`, and one kernel of `kernel_ns` at full clock."""

    kernel_ns: float
    ramp_ns: float = 0.0
    has_graphs: bool = True
    flush_bytes: int = 0
    busy_ns: float = 0.0
    probed: int = 0
    sets: int = 1
    firsts: list[int] = field(default_factory=list)

    def time_by(
        self, how: int, _problem: Any, _sets: Any, count: int, first: int, loops: int, samples: int, times: Any
    ) -> int:
        """The function of a library."""
        if how & BY_GRAPH and not self.has_graphs:
            return 1
        if not how & OF_NOTHING:
            assert count == self.sets
            self.firsts.append(first)
        kernel_ns = 0.0 if how & OF_NOTHING else self.kernel_ns
        for sample in range(samples):
            at_clock_ns = kernel_ns * (1 if self.busy_ns >= self.ramp_ns else 2)
            times[sample] = at_clock_ns + GAP_NS if how & BY_GRAPH else max(at_clock_ns, LAUNCH_NS)
            self.busy_ns += times[sample] * loops
        return 0

    def flush_buffer(self) -> tuple[int, int]:
        """The method of a memory."""
        return self.flush_bytes, self.flush_bytes

    def operand_sets(self) -> list[tuple[int, int, int, int]]:
        """The method of a memory."""
        return [(1, 2, 3, 4)] * self.sets

    def probe(self) -> None:
        """The method of a memory."""
        self.probed += 1

    def stopwatch(self) -> Stopwatch:
        """A stopwatch for it."""
        return Stopwatch(cast("Memory", self), lambda _library, code: pytest.fail(str(code)) if code else None)

    @property
    def library(self) -> KernelLibrary:
        """Its kernel."""
        return cast("KernelLibrary", self)


@pytest.mark.parametrize("kernel_ns", [500.0, 20e3, 3e6])
def test_a_cold_clock_is_not_timed(kernel_ns: float) -> None:
    """If a GPU's first 200 ms are at half clock, the first kernel is timed at full clock, like those after it."""
    gpu = Gpu(kernel_ns, ramp_ns=200e6)
    stopwatch = gpu.stopwatch()
    wanted_ns = max(kernel_ns, LAUNCH_NS)
    for most_ns in (270e6, 20e6):
        before_ns = gpu.busy_ns
        assert stopwatch.warm_up(gpu.library, None, 2 * kernel_ns) == wanted_ns
        assert stopwatch.time(gpu.library, None, 1, 2) == (wanted_ns, wanted_ns)
        assert gpu.busy_ns - before_ns < most_ns


def test_operands_rotate_across_timings() -> None:
    """Each begins with the set after the last one of the previous timing."""
    gpu = Gpu(20e3, sets=5)
    stopwatch = gpu.stopwatch()
    for loops, samples in ((3, 1), (2, 2), (1, 1)):
        stopwatch.time(gpu.library, None, loops, samples)
    assert gpu.firsts == [0, 3, 2]


def test_launching_is_measured_once() -> None:
    """By launches and by a graph."""
    gpu = Gpu(1000.0)
    stopwatch = gpu.stopwatch()
    assert stopwatch.launching(gpu.library) == Launching(LAUNCH_NS, GAP_NS)
    busy_ns = gpu.busy_ns
    assert stopwatch.launching(gpu.library) == Launching(LAUNCH_NS, GAP_NS)
    assert gpu.busy_ns == busy_ns > 0


def test_a_gpu_without_graphs_has_launches() -> None:
    """It is probed whether it still works."""
    gpu = Gpu(1000.0, has_graphs=False)
    assert gpu.stopwatch().launching(gpu.library) == Launching(LAUNCH_NS, 0.0)
    assert gpu.probed == 1


def test_caches_are_not_flushed_within_a_graph() -> None:
    """If caches are flushed before each launch, there are no graphs."""
    gpu = Gpu(1000.0, flush_bytes=1 << 20)
    assert gpu.stopwatch().launching(gpu.library) == Launching(LAUNCH_NS, 0.0)


def test_short_kernels_differ_in_a_graph() -> None:
    """Launch by launch a kernel of 1 us takes as long as one of 2 us, but not in a graph."""
    times = {}
    for by_graph in (False, True):
        for kernel_ns in (1000.0, 2000.0):
            gpu = Gpu(kernel_ns)
            times[by_graph, kernel_ns] = gpu.stopwatch().time(gpu.library, None, 10, 1, by_graph=by_graph)[0]
    assert times[False, 1000.0] == times[False, 2000.0] == LAUNCH_NS
    assert times[True, 2000.0] - times[True, 1000.0] == 1000.0


def test_a_launch_before_the_warm_up_does_not_shorten_it() -> None:
    """A GPU that ran its first kernel once, for an estimate, is still cold."""
    gpu = Gpu(20e3, ramp_ns=200e6)
    stopwatch = gpu.stopwatch()
    stopwatch.time(gpu.library, None, 1, 1)
    assert stopwatch.warm_up(gpu.library, None, 40e3) == 20e3
    assert gpu.busy_ns > gpu.ramp_ns


def test_a_launch_after_a_pause_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second of idleness the warm-up is longer than between kernels, even after a single launch in between."""
    now = [0.0]
    monkeypatch.setattr(timing, "monotonic", lambda: now[0])
    gpu = Gpu(20e3)
    stopwatch = gpu.stopwatch()
    spent_ns = []
    for pause_s in (0.0, 0.0, 1.0):
        now[0] += pause_s
        stopwatch.time(gpu.library, None, 1, 1)
        before_ns = gpu.busy_ns
        stopwatch.warm_up(gpu.library, None, 20e3)
        spent_ns.append(gpu.busy_ns - before_ns)
    assert spent_ns[0] >= 250e6
    assert spent_ns[1] < 3e6
    assert 25e6 <= spent_ns[2] < 30e6


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_pause_during_the_warm_up_hides_no_wrong_clock(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are compared with the call of the warm-up in which the machine did not pause."""
    gpu, now_ns, calls = Gpu(500e3), [0], 0

    def time_by(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        code = Gpu.time_by(gpu, *arguments)
        loops, samples, times = arguments[-3:]
        now_ns[0] += int(gpu.kernel_ns * loops * samples) + (0 if calls == 2 else 30_000_000)
        for sample in range(samples):
            times[sample] *= factor * (1 + sample * 1e-9)
        return code

    monkeypatch.setattr(gpu, "time_by", time_by)
    monkeypatch.setattr(timing, "perf_counter_ns", lambda: now_ns[0])
    stopwatch = gpu.stopwatch()
    stopwatch.warm_up(gpu.library, None, 500e3)
    calls = 1  # the next call, too, has no pause
    _, reason = stopwatch.checked(gpu.library, None, 1, 20, few=stopwatch.last)
    assert bool(reason) == (factor < 1)
