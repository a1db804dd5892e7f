"""The worker's work: inputs and reference of a problem, and measuring one kernel on it."""

from __future__ import annotations

import ctypes
import zlib
from contextlib import contextmanager
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.bench import timing
from ckh.bench.buffers import GuardedBuffer, float_view, input_array
from ckh.bench.library import KernelLibrary, c_problem
from ckh.bench.protocol import Job, Phase, Reply, Seconds
from ckh.bench.reference import operand_shapes
from ckh.bench.verify import Limits
from ckh.data.schema import Status
from ckh.problems import parse_conv_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ckh.problems import ConvProblem

Array = NDArray[Any]

_WORKSPACE_FILL_BYTES = 4 << 20
_NAN_BYTE = 0xFF


class KernelFailure(Exception):  # noqa: N818 - it is a result, not a fault of ours
    """A kernel failed in an orderly way."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Problem:
    """Inputs, reference and output buffer of the problem that kernels are measured on."""

    def __init__(self, problem: ConvProblem, best_ns: float, clock: PhaseClock) -> None:
        self.best_ns = best_ns
        self.c = c_problem(problem)
        shape_a, shape_b, shape_out = operand_shapes(problem)
        with clock.phase(Phase.INPUTS):
            # The generator is seeded by the problem: a problem has the same inputs in every worker.
            random = np.random.Generator(np.random.SFC64(zlib.crc32(problem.canonical().encode())))
            self.a, self.b = (_random_input(random, shape) for shape in (shape_a, shape_b))
            self.buffer = GuardedBuffer(4 * int(np.prod(shape_out)))
            self.out = float_view(self.buffer, shape_out)
        with clock.phase(Phase.REFERENCE):
            self.limits = Limits(problem, self.a, self.b)


def _random_input(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    values = random.random(shape, dtype=np.float32)
    values *= 2.0
    values -= 1.0
    return input_array(values)


class PhaseClock:
    """Adds up seconds by phase until they are taken."""

    def __init__(self) -> None:
        self._seconds: Seconds = {}

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Count what happens inside."""
        start = perf_counter()
        try:
            yield
        finally:
            self.add(phase, perf_counter() - start)

    def add(self, phase: Phase, seconds: float) -> None:
        """Count seconds."""
        self._seconds[phase.value] = self._seconds.get(phase.value, 0.0) + seconds

    def take(self) -> Seconds:
        """What was counted since the last time."""
        taken, self._seconds = self._seconds, {}
        return taken


class Bench:
    """Measures kernels, one problem after another."""

    def __init__(self, clock: PhaseClock) -> None:
        self._clock = clock
        self._libraries: dict[str, KernelLibrary] = {}
        self._problem: _Problem | None = None
        self._workspace = GuardedBuffer(0)

    def set_problem(self, job: Job) -> Reply:
        """Make inputs and reference."""
        self._problem = None  # frees the memory first
        self._problem = _Problem(parse_conv_problem(job.problem), job.best_ns, self._clock)
        return Reply(job.id, Status.OK)

    def measure(self, job: Job) -> Reply:
        """Run a kernel once, check the result, calibrate and time it."""
        problem = self._current()
        library = self._library(job.library)
        self._prepare(library, problem)
        with self._clock.phase(Phase.RUN):
            start = perf_counter_ns()
            code = library.run(*self._arguments(problem))
            first_ns = float(perf_counter_ns() - start)
        _check_code(code)
        with self._clock.phase(Phase.VERIFY):
            self._check_canaries(problem)
            if complaint := problem.limits.complaint(problem.out):
                raise KernelFailure(Status.WRONG_RESULT, complaint)
        samples, loops = self._time_samples(library, problem, first_ns, job.samples)
        self._check_canaries(problem)
        middle = timing.summarize(samples).median_ns
        problem.best_ns = min(problem.best_ns, middle) if problem.best_ns > 0 else middle
        return Reply(job.id, Status.OK, "", samples, loops)

    def time(self, job: Job) -> Reply:
        """Take samples of a kernel that was measured before; the first run of each is a warm-up that is not counted."""
        problem, library = self._current(), self._library(job.library)
        self._prepare(library, problem)
        with self._clock.phase(Phase.TIME):
            samples = tuple(
                self._time(library, problem, job.loops if counted else 1, 1)[0]
                for _ in range(job.samples)
                for counted in (False, True)
            )[1::2]
        self._check_canaries(problem)
        return Reply(job.id, Status.OK, "", samples, job.loops)

    def _current(self) -> _Problem:
        if self._problem is None:
            raise KernelFailure(Status.LAUNCH_ERROR, "there is no problem to run")
        return self._problem

    def _library(self, path: str) -> KernelLibrary:
        if path not in self._libraries:
            with self._clock.phase(Phase.LOAD):
                try:
                    self._libraries[path] = KernelLibrary(path)
                except (OSError, AttributeError) as error:
                    raise KernelFailure(Status.LAUNCH_ERROR, f"cannot load the kernel: {error}") from error
        return self._libraries[path]

    def _prepare(self, library: KernelLibrary, problem: _Problem) -> None:
        """Ask whether the kernel can run, and fill workspace and output with NaN."""
        if reason := library.unsupported(problem.c):
            raise KernelFailure(Status.UNSUPPORTED, reason.decode(errors="replace"))
        with self._clock.phase(Phase.VERIFY):
            self._provide_workspace(library.workspace_bytes(problem.c))
            problem.buffer.reset()
            problem.out.fill(np.nan)

    def _provide_workspace(self, size: int) -> None:
        if size < 0:
            raise KernelFailure(Status.LAUNCH_ERROR, f"the kernel asks for {size} bytes of workspace")
        if size > self._workspace.data.nbytes:
            try:
                self._workspace = GuardedBuffer(size)
            except (OSError, ValueError, OverflowError) as error:
                reason = f"no {size / 1e6:.0f} MB of workspace: {error}"
                raise KernelFailure(Status.LAUNCH_ERROR, reason) from error
        self._workspace.reset()
        # A kernel that counts on zeros there is found out; the first megabytes are enough for that.
        self._workspace.data[: min(size, _WORKSPACE_FILL_BYTES)] = _NAN_BYTE

    def _arguments(self, problem: _Problem) -> tuple[Any, ...]:
        pointers = (problem.a.ctypes.data, problem.b.ctypes.data, problem.buffer.address, self._workspace.address)
        return (ctypes.byref(problem.c), *pointers)

    def _check_canaries(self, problem: _Problem) -> None:
        for name, buffer in (("output", problem.buffer), ("workspace", self._workspace)):
            if where := buffer.overrun():
                buffer.reset()
                raise KernelFailure(Status.WRONG_RESULT, f"the kernel wrote out of bounds: {where} the {name}")

    def _time_samples(
        self, library: KernelLibrary, problem: _Problem, first_ns: float, wanted: int
    ) -> tuple[tuple[float, ...], int]:
        if timing.first_run_suffices(first_ns, problem.best_ns):
            return (first_ns,), 1
        estimate_ns = first_ns
        with self._clock.phase(Phase.CALIBRATE):
            if warm_up := timing.warm_up_loops(first_ns):
                estimate_ns = self._time(library, problem, warm_up, 1)[0]
        loops = timing.loops_for(estimate_ns)
        with self._clock.phase(Phase.TIME):
            count = timing.sample_count(estimate_ns, problem.best_ns, wanted)
            return self._time(library, problem, loops, count), loops

    def _time(self, library: KernelLibrary, problem: _Problem, loops: int, samples: int) -> tuple[float, ...]:
        times = (ctypes.c_double * samples)()
        _check_code(library.time(*self._arguments(problem), loops, samples, times))
        return tuple(times)


def _check_code(code: int) -> None:
    if code:
        raise KernelFailure(Status.LAUNCH_ERROR, f"the kernel returned {code}")


def answer(job: Job, work: Callable[[Job], Reply]) -> Reply:
    """Do a job; a kernel's orderly failure and missing memory are answers too."""
    try:
        return work(job)
    except KernelFailure as failure:
        return Reply(job.id, failure.status, failure.message)
    except (MemoryError, OSError) as error:
        return Reply(job.id, Status.LAUNCH_ERROR, f"out of memory: {error}")
