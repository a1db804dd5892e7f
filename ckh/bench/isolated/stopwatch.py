"""Timing a worker's kernels: warm-up until the clock is steady, the share of launching, and graphs of launches."""

from __future__ import annotations

import ctypes
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

from ckh.bench.isolated import timing
from ckh.bench.isolated.library import BY_GRAPH, OF_NOTHING, Operands
from ckh.bench.isolated.timing import Launching

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.bench.isolated.library import KernelLibrary
    from ckh.bench.isolated.memory import Memory

_Samples = tuple[float, ...]

_EMPTY_LOOPS, _EMPTY_COLD_LOOPS, _EMPTY_SAMPLES = 200, 10, 5


class Stopwatch:
    """Times kernels in a memory.

    Args:
        memory: where they run.
        check: called with a library and what its function returned; raises if that is not 0.
    """

    def __init__(self, memory: Memory, check: Callable[[KernelLibrary, int], None]) -> None:
        self._memory = memory
        self._check = check
        self._launching: Launching | None = None
        self._runs = 0
        self._last_s: float | None = None  # when the device was last busy
        self._idle_s: float | None = None  # its longest pause since it was warm; None: it never was

    def time(
        self, library: KernelLibrary, problem: Any, loops: int, samples: int, *, by_graph: bool = False
    ) -> _Samples:
        """Take samples of a kernel, in ns of a run.

        Raises:
            what `check` raises.
        """
        times = (ctypes.c_double * samples)()
        self._count_pause()
        if library.time_by is None:
            code = library.time(problem, *self._memory.pointers(), loops, samples, times)
        else:
            each = self._memory.operand_sets()
            sets = (Operands * len(each))(*(Operands(*addresses) for addresses in each))
            how, first = BY_GRAPH if by_graph else 0, self._runs % len(each)
            code = library.time_by(how, problem, sets, len(each), first, loops, samples, times)
            self._runs += loops * samples  # the next one goes on with what was not used for longest
        self._check(library, code)
        self._last_s = monotonic()
        return tuple(times)

    def warm_up(self, library: KernelLibrary, problem: Any, run_ns: float, *, by_graph: bool = False) -> float:
        """Run a kernel until the clock is steady; ns of a run at the end, 0 if the clock stands still."""
        self._count_pause()
        warm_up = timing.WarmUp(self._idle_s)
        while not warm_up.is_over:
            loops = timing.loops_for(run_ns)
            (run_ns,) = self.time(library, problem, loops, 1, by_graph=by_graph)
            if timing.complaint((run_ns,)):
                break  # which its samples have too
            warm_up.add(run_ns, loops)
            if warm_up.stands_still:
                return 0.0
        self._idle_s = 0.0
        return run_ns

    def _count_pause(self) -> None:
        """Take in the time since the device was last busy, which a calibrating launch before a warm-up does not end."""
        if self._idle_s is not None and self._last_s is not None:
            self._idle_s = max(self._idle_s, monotonic() - self._last_s)

    def launching(self, library: KernelLibrary) -> Launching:
        """Return the time of a launch; measured once, with the empty kernel of a library."""
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
        return 0.0 if timing.complaint(tuple(times)) else median(times)
