"""Kernel timing: calibration, number of samples, and statistics of samples.

A sample runs the kernel as often as needed to last half a millisecond. A kernel far slower than the best one known for
the problem gets fewer samples: its exact time does not matter, and would take most of the time of a sweep.

A GPU is warmed up first by runs of the kernel, until it was busy for long enough and three successive samples agree.
Launch overhead is measured with an empty kernel, and short kernels are launched by graphs.

A GPU's events are held against the host's clock, as both pass the same seconds (`outlasts_host`, `lags_host`).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from math import ceil, isclose
from statistics import median
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.bench.isolated.kernel_library import BY_GRAPH, OF_NOTHING, pointers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.isolated.kernel_library import KernelLibrary
    from ckh.bench.isolated.memory import Memory

MIN_SAMPLE_NS = 500_000.0
MAX_LOOPS = 1_000_000
DEFAULT_SAMPLES = 5

# Plausible times of a kernel. Beyond these its clock is wrong, and sums of its times may overflow.
POSSIBLE_NS = (1e-3, 1e15)
# Events tick every 10 ns, and samples of half a millisecond vary by some 100 ns: so many are hardly ever equal.
_NEVER_EQUAL = 3

# Ratio to the best time -> maximum number of samples.
_FEWER_SAMPLES = ((10.0, 1), (3.0, 2))
# Above this, the first run is warm enough to calibrate with, and is its own warm-up.
_SELF_WARMING_NS = 4_000_000.0
_MAX_TIMING_NS = 2e9

# Median absolute deviation / median above which a time is called unstable.
UNSTABLE_SPREAD = 0.05
MANY_UNSTABLE = 0.1  # share of unstable times of a run

# A kernel below this many launch times, launched one by one, waits for the host; launches of a graph do not.
LEAST_LAUNCHES = 3.0
LEAST_GRAPH_LAUNCHES = 1.5

# Busy time of a GPU before its first sample: initially, after so many seconds of idleness, and between kernels.
_FIRST_WARM_UP_NS = 250e6
_IDLE_S, _IDLE_WARM_UP_NS = 0.2, 25e6
_WARM_UP_NS = 1.5e6
_MORE_WARM_UP_NS = 50e6  # for a kernel whose samples do not agree
_STEADY, _STEADY_RATIO = 3, 1.02
_MAX_WARM_UPS = 1000


# Events lie within the call that the host times: more is a wrong clock. Two clocks differ by some 100 ppm, and events
# are as coarse as microseconds.
_MOST_OF_HOST, _HOST_SLACK_NS = 1.05, 50e3
# Between samples of half a millisecond and more, a GPU waits for the host's wake-up and its next launch, together less
# than 100 us: events are five sixths of the host's time, or more. What is the same in each call (making events and
# graphs, some milliseconds) is left out by comparing calls of few and of many samples, which must differ by so much.
_LEAST_OF_HOST, _LEAST_COMPARED_NS = 0.6, 1e6
_LAG_TRIES = 20  # a pause of a busy machine looks the same, but does not occur each time
_LEAST_IN_GRAPH = 32  # Graph::least in exports.hpp


class Clocked(NamedTuple):
    """Time of a call that samples a kernel, in ns: by the GPU's events, and by the host's clock."""

    events_ns: float
    host_ns: float

    @property
    def waited_ns(self) -> float:
        """The host's time beside the events."""
        return self.host_ns - self.events_ns


def outlasts_host(call: Clocked | None) -> str:
    """Reason why the events of a call cannot be right: they lasted longer than the call; empty if they can."""
    if call is None or call.events_ns <= _MOST_OF_HOST * call.host_ns + _HOST_SLACK_NS:
        return ""
    return f"the GPU's events say {call.events_ns / 1e6:.3g} ms of a call that took {call.host_ns / 1e6:.3g} ms"


def lags_host(few: Clocked | None, many: Clocked | None) -> str:
    """Reason why the events of calls with few and many samples differ by too little, compared with the calls."""
    if few is None or many is None:
        return ""
    events_ns, host_ns = many.events_ns - few.events_ns, many.host_ns - few.host_ns
    if events_ns < _LEAST_COMPARED_NS or events_ns >= _LEAST_OF_HOST * host_ns:
        return ""
    return f"the GPU's events say {events_ns / 1e6:.3g} ms of samples that took {host_ns / 1e6:.3g} ms"


@dataclass(frozen=True, slots=True)
class Timing:
    """Statistics of a kernel's samples, in ns."""

    median_ns: float
    min_ns: float
    spread: float


@dataclass(frozen=True, slots=True)
class Launching:
    """Times of an empty kernel in ns, launched one by one and by a graph; 0: unknown."""

    single_ns: float = 0.0
    graph_ns: float = 0.0

    def wants_graph(self, run_ns: float) -> bool:
        """True if a kernel is too short for separate launches, and graphs are available."""
        return self.graph_ns > 0 and run_ns < LEAST_LAUNCHES * self.single_ns

    def of(self, *, by_graph: bool) -> float:
        """The launch time of the given method."""
        return self.graph_ns if by_graph else self.single_ns


def is_launch_bound(run_ns: float, launch_ns: float, *, by_graph: bool) -> bool:
    """True if a time is dominated by launch overhead `launch_ns` rather than by the kernel."""
    return run_ns < (LEAST_GRAPH_LAUNCHES if by_graph else LEAST_LAUNCHES) * launch_ns


@dataclass(slots=True)
class WarmUp:
    """Runs of a kernel before timing on a GPU that was idle for so many seconds; None: it was never used."""

    idle_s: float | None
    stands_still: bool = False
    """True if the device's clock does not advance: n runs and 2n runs took the same time."""
    _times_ns: list[float] = field(default_factory=list)
    _spent_ns: float = 0.0
    _last: tuple[int, float] = (0, 0.0)

    def add(self, run_ns: float, loops: int) -> None:
        """Record `loops` runs with a mean time of `run_ns`."""
        last_loops, last_ns = self._last
        self.stands_still |= loops >= 2 * last_loops > 0 and isclose(last_ns, run_ns * loops)
        self._last = loops, run_ns * loops
        self._times_ns.append(run_ns)
        self._spent_ns += run_ns * loops

    @property
    def is_over(self) -> bool:
        """True if the device was busy for long enough, and its clock is steady or will not become so."""
        if len(self._times_ns) >= _MAX_WARM_UPS:
            return True
        needed_ns = _WARM_UP_NS
        if self.idle_s is None:
            needed_ns = _FIRST_WARM_UP_NS
        elif self.idle_s > _IDLE_S:
            needed_ns = _IDLE_WARM_UP_NS
        if self._spent_ns < needed_ns:
            return False
        last = self._times_ns[-_STEADY:]
        is_steady = len(last) == _STEADY and max(last) <= _STEADY_RATIO * min(last)
        return is_steady or self._spent_ns >= needed_ns + _MORE_WARM_UP_NS


def complaint(samples_ns: Sequence[float]) -> str:
    """Reason why these cannot be times of a kernel; empty if they can."""
    if not samples_ns:
        return "there is no time"
    wrong = next((sample for sample in samples_ns if not POSSIBLE_NS[0] <= sample <= POSSIBLE_NS[1]), None)
    return "" if wrong is None else f"the kernel says that it took {wrong:g} ns"


def stands_still(samples_ns: Sequence[float]) -> str:
    """Reason why these samples of a GPU are none: they are equal to the last digit; empty if they differ."""
    if len(samples_ns) < _NEVER_EQUAL or len(set(samples_ns)) > 1:
        return ""
    return f"the GPU's events say {samples_ns[0]!r} ns for all of {len(samples_ns)} samples"


def sample_count(estimate_ns: float, best_ns: float, wanted: int) -> int:
    """Number of samples for a kernel. `best_ns` 0: no other time is known."""
    if best_ns > 0:
        for factor, count in _FEWER_SAMPLES:
            if estimate_ns > factor * best_ns:
                return min(wanted, count)
    return min(wanted, max(1, int(_MAX_TIMING_NS // max(estimate_ns, 1.0))))


def is_too_few(samples_ns: Sequence[float], best_ns: float, wanted: int) -> bool:
    """True if a kernel considered slow needs more samples: it is faster than estimated, or its samples do not agree."""
    timing = summarize(samples_ns)
    few = len(samples_ns) < sample_count(timing.min_ns, 0.0, wanted)
    return few and (timing.spread > UNSTABLE_SPREAD or len(samples_ns) < sample_count(timing.min_ns, best_ns, wanted))


def is_hopeless(run_ns: float, best_ns: float) -> bool:
    """True if a single run is enough: it is far slower than the best, and long enough to be a sample."""
    return best_ns > 0 and run_ns > _FEWER_SAMPLES[0][0] * best_ns and run_ns >= MIN_SAMPLE_NS


def warm_up_loops(first_ns: float) -> int:
    """Number of runs to warm caches and calibrate; 0 if the first run did."""
    return 0 if first_ns >= _SELF_WARMING_NS else loops_for(first_ns, MIN_SAMPLE_NS / 2)


def loops_for(estimate_ns: float, target_ns: float = MIN_SAMPLE_NS) -> int:
    """Number of runs that last the target time."""
    return min(MAX_LOOPS, max(1, ceil(target_ns / max(estimate_ns, 1.0))))


def in_graphs(loops: int, sets: int) -> int:
    """Number of launches that graphs of `loops` launches or more start, of a multiple of the operand sets each."""
    size = -(-_LEAST_IN_GRAPH // sets) * sets
    return -(-loops // size) * size


def summarize(samples_ns: Sequence[float]) -> Timing:
    """Median, minimum and relative median absolute deviation of samples."""
    middle = median(samples_ns)
    deviation = median(abs(sample - middle) for sample in samples_ns)
    return Timing(middle, min(samples_ns), deviation / middle if middle > 0 else 0.0)


_Samples = tuple[float, ...]

_EMPTY_LOOPS, _EMPTY_COLD_LOOPS, _EMPTY_SAMPLES = 200, 10, 5


class Stopwatch:
    """Times kernels in a memory."""

    def __init__(self, memory: Memory, check: Callable[[KernelLibrary, int], None]) -> None:
        self._memory = memory
        self._check = check
        self._launching: Launching | None = None
        self._runs = 0
        self.launched = {0}  # operand sets, since this was reset
        self.last: Clocked | None = None
        """The last timed call on a GPU; after a warm-up, its call with the least pause. None: caches are emptied."""
        self._last_s: float | None = None  # when the device was last busy
        self._idle_s: float | None = None  # longest pause since it was warm; None: it never was

    def time(
        self, library: KernelLibrary, problem: Any, loops: int, samples: int, *, by_graph: bool = False
    ) -> _Samples:
        """Take samples of a kernel, in ns per run."""
        times = (ctypes.c_double * samples)()
        self._count_pause()
        if library.time_by is None:
            code = library.time(problem, pointers(self._memory.pointers()), loops, samples, times)
        else:
            each = self._memory.operand_sets()
            how, first = BY_GRAPH if by_graph else 0, self._runs % len(each)
            start_ns = perf_counter_ns()
            code = library.time_by(how, problem, pointers(*each), len(each), first, loops, samples, times)
            launches = in_graphs(loops, min(len(each), loops * samples)) if by_graph else loops
            host_ns, is_flushed = perf_counter_ns() - start_ns, self._memory.flush_buffer()[1]
            self.last = None if is_flushed else Clocked(sum(times) * launches, host_ns)
            self.launched |= {(first + i) % len(each) for i in range(min(len(each), loops * samples))}
            self._runs += loops * samples  # the next sample continues with the least recently used operand set
        self._check(library, code)
        self._last_s = monotonic()
        return tuple(times)

    def checked(
        self,
        library: KernelLibrary,
        problem: Any,
        loops: int,
        samples: int,
        *,
        by_graph: bool = False,
        few: Clocked | None = None,
    ) -> tuple[_Samples, str]:
        """Samples as by `time`, and the reason why they cannot be times, or an empty string."""
        for _ in range(_LAG_TRIES):
            times = self.time(library, problem, loops, samples, by_graph=by_graph)
            still = "" if library.time_by is None else stands_still(times)
            if reason := complaint(times) or still or outlasts_host(self.last):
                break
            if not (reason := lags_host(few, self.last)):
                break
        return times, reason

    def warm_up(self, library: KernelLibrary, problem: Any, run_ns: float, *, by_graph: bool = False) -> float:
        """Run a kernel until the clock is steady; returns ns per run at the end, 0 if the clock does not advance."""
        self._count_pause()
        warm_up, calls = WarmUp(self._idle_s), list[Clocked]()
        while not warm_up.is_over:
            loops = loops_for(run_ns)
            (run_ns,) = self.time(library, problem, loops, 1, by_graph=by_graph)
            calls += [self.last] if self.last else []
            if complaint((run_ns,)):
                break  # so will its samples
            warm_up.add(run_ns, loops)
            if warm_up.stands_still:
                return 0.0
        self._idle_s = 0.0
        # A wrong clock would pass beside a call in which the machine paused.
        self.last = min(calls, key=lambda call: call.waited_ns, default=None)
        return run_ns

    def _count_pause(self) -> None:
        """Record the time since the device was last busy; a calibrating launch before a warm-up does not reset it."""
        if self._idle_s is not None and self._last_s is not None:
            self._idle_s = max(self._idle_s, monotonic() - self._last_s)

    def launching(self, library: KernelLibrary) -> Launching:
        """Return the launch time, measured once with the empty kernel of a library."""
        if self._launching is None:
            _, flush_bytes = self._memory.flush_buffer()
            loops = _EMPTY_COLD_LOOPS if flush_bytes else _EMPTY_LOOPS
            graph_ns = 0.0 if flush_bytes else self._empty_ns(library, OF_NOTHING | BY_GRAPH, loops)
            self._launching = Launching(self._empty_ns(library, OF_NOTHING, loops), graph_ns)
        return self._launching

    def _empty_ns(self, library: KernelLibrary, how: int, loops: int) -> float:
        """Return the time of the empty kernel in ns; 0 if it cannot be timed in this way."""
        if library.time_by is None:
            return 0.0
        times = (ctypes.c_double * _EMPTY_SAMPLES)()
        if library.time_by(how, None, None, 0, 0, loops, _EMPTY_SAMPLES, times):
            self._memory.probe()
            return 0.0
        return 0.0 if complaint(tuple(times)) else median(times)
