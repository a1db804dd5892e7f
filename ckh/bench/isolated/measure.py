"""Jobs of the worker: prepare inputs and reference of a problem, and measure kernels on it, on the host or a GPU."""

from __future__ import annotations

import ctypes
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.computation import Split, computation_of
from ckh.bench.isolated import timing
from ckh.bench.isolated.checks import GpuLimits
from ckh.bench.isolated.hip_runtime import NO_MEMORY, HipError, HipMemoryError
from ckh.bench.isolated.kernel_library import KernelLibrary, pointers
from ckh.bench.isolated.memory import differing
from ckh.bench.isolated.operands import drawn, laid_out, overwritten, stored_shape, tensor_of
from ckh.bench.isolated.timing import Stopwatch
from ckh.bench.isolated.typed import element_type
from ckh.bench.isolated.verify import Limits, wrong_sums
from ckh.bench.supervision.protocol import RESULT, Job, Phase, PhaseClock, Reply, operand_file
from ckh.errors import CkhError
from ckh.ops import operation_of
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.isolated.checks import GpuChecks
    from ckh.bench.isolated.memory import Memory
    from ckh.bench.isolated.typed import Array
    from ckh.bench.isolated.verify import Sums
    from ckh.bench.supervision.protocol import Card
    from ckh.ops.base import Problem


# Message of a device without times for a right result: the largest error of an element.
ERROR_PREFIX, ERROR_SUFFIX = "largest error ", " of the largest output"
_NO_LAUNCHES = timing.Launching()  # the host calls its kernels directly


class KernelFailure(Exception):  # noqa: N818 - it is a result, not a fault of ours
    """An expected failure of a kernel."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A kernel whose time detects changes of the clock; `loops` is the number of runs per sample."""

    library: str
    loops: int


class _Problem:
    """The current problem: operands in device memory, limits of right results on the host, and on a GPU that checks."""

    def __init__(
        self,
        problem: Problem,
        job: Job,
        memory: Memory,
        clock: PhaseClock,
        checks: GpuChecks | None,
        *,
        fnuz_floats: bool,
    ) -> None:
        self.best_ns = job.best_ns
        self.anchor = _Anchor(job.library, job.loops) if job.library else None
        self.folder = Path(job.folder)
        computation = computation_of(problem)
        self._split: Callable[[str], Split] = partial(computation.split, problem)
        self.c = ctypes.byref(computation.c_problem(problem))
        operands, self._output = computation.operands_of(problem)
        self._element = element_type(self._output.dtype, fnuz_floats=fnuz_floats)
        with clock.phase(Phase.INPUTS):
            # Seeded by the problem, so that all workers use the same operands.
            random = np.random.Generator(np.random.SFC64(zlib.crc32(problem.canonical().encode())))
            tensors: list[Array] = []
            for place, operand in enumerate(operands):
                if job.folder:
                    storage = element_type(operand.dtype, fnuz_floats=fnuz_floats).storage
                    dense = np.fromfile(self.folder / operand_file(place), storage).reshape(operand.shape)
                    stored = laid_out(operand, dense, fnuz_floats=fnuz_floats)
                else:
                    stored = drawn(operand, random, fnuz_floats=fnuz_floats)
                if operand.order is None:
                    tensors.append(tensor_of(operand, memory.add_input(stored)))
                else:  # kernels read it in another order
                    memory.add_input(np.ascontiguousarray(operand.order(stored)))
                    tensors.append(stored)
            memory.set_output(stored_shape(self._output), self._element)
        self._limits: Limits | None = None
        self.on_gpu: GpuLimits | None = None
        if job.is_checked:
            with clock.phase(Phase.REFERENCE):
                sums = None if checks is None else _sums_by(checks, problem, tensors, fnuz_floats=fnuz_floats)
                self._limits = Limits(problem, *tensors, fnuz_floats=fnuz_floats, sums=sums)
                if checks is not None and sums is not None:
                    with suppress(HipMemoryError):  # the host has limits, too
                        self.on_gpu = GpuLimits(checks, self._limits, self._output, self._element)

    @property
    def is_checked(self) -> bool:
        """True if there is a reference."""
        return self._limits is not None

    @property
    def limits(self) -> Limits:
        """Limits of right results, for a problem with a reference."""
        assert self._limits is not None
        return self._limits

    def split(self, library: KernelLibrary) -> Split:
        """How a kernel splits this problem's sums."""
        return self._split(library.name())

    def tensor(self, result: Array) -> Array:
        """The result's tensor."""
        return tensor_of(self._output, result)

    def complaint(self, result: Array, split: Split) -> str:
        """Reason why a stored result is wrong; empty if right."""
        if count := overwritten(self._output, result, self._element):
            return f"the kernel wrote {count} elements between the rows of the output"
        return self.limits.complaint(self.tensor(result), split)


def _sums_by(checks: GpuChecks, problem: Problem, tensors: Sequence[Array], *, fnuz_floats: bool) -> Sums | None:
    """Return the sums of a problem's products, computed by the GPU and checked; None: the host is to compute them."""
    sums = None
    with suppress(HipMemoryError):
        sums = checks.sums(problem, tensors, fnuz_floats=fnuz_floats)
    if sums is not None and (wrong := wrong_sums(problem, sums, *tensors, fnuz_floats=fnuz_floats)):
        reason = f"the reference that the GPU computes is wrong {wrong}"
        raise KernelFailure(Status.LAUNCH_ERROR, f"{reason} (--verify-on host computes it there)")
    return sums


@dataclass(frozen=True, slots=True)
class _Times:
    """Mean times of a number of kernel runs, and how they were measured."""

    samples_ns: tuple[float, ...]
    loops: int
    launching: timing.Launching = _NO_LAUNCHES
    by_graph: bool = False
    card: Card | None = None

    def reply(self, job: Job) -> Reply:
        """Reply to the job."""
        launch_ns = self.launching.of(by_graph=self.by_graph)
        reply = Reply(job.id, Status.OK, "", self.samples_ns, self.loops)
        return replace(reply, launch_ns=launch_ns, by_graph=self.by_graph, card=self.card)


class Bench:
    """Measures kernels in a memory, problem by problem.

    Each method executes one kind of job. They raise `KernelFailure`, `OSError` or `MemoryError`, and `HipError` when
    the GPU cannot be used any more; `answer` converts these to replies.
    """

    def __init__(
        self,
        memory: Memory,
        clock: PhaseClock,
        card: Callable[[], Card] = dict,
        checks: GpuChecks | None = None,
        *,
        fnuz_floats: bool = False,
        has_times: bool = True,
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._card = card
        self._checks = checks
        self._fnuz_floats = fnuz_floats
        self._has_times = has_times
        self._libraries: dict[str, KernelLibrary] = {}
        self._problem: _Problem | None = None
        self._stopwatch = Stopwatch(memory, self._check_code)

    def load(self, job: Job) -> Reply:
        """Load a library without running it; the reply's message is the kernel's name, if any."""
        return Reply(job.id, Status.OK, self._library(job.library).name())

    def set_problem(self, job: Job) -> Reply:
        """Prepare inputs and reference."""
        self._problem = None  # free the memory first
        self._memory.clear()
        problem = operation_of(job.problem).problems.parse(job.problem)
        self._problem = _Problem(problem, job, self._memory, self._clock, self._checks, fnuz_floats=self._fnuz_floats)
        return Reply(job.id, Status.OK)

    def run(self, job: Job) -> Reply:
        """Run a kernel once on operands from a folder and write its result there; the operands are freed afterwards."""
        problem, library = self._current(), self._library(job.library)
        if problem.is_checked:
            self._run_checked(library, problem)
        else:
            self._run(library, problem)
            if where := self._memory.overrun():
                raise KernelFailure(Status.WRONG_RESULT, f"the kernel wrote out of bounds: {where}")
        problem.tensor(self._memory.result()).tofile(problem.folder / RESULT)
        self._problem = None
        self._memory.clear()
        return Reply(job.id, Status.OK)

    def measure(self, job: Job) -> Reply:
        """Run a kernel, check the result, run it again, calibrate, time it, and check the last result.

        A kernel slow enough to be its own warm-up is not run a second time before timing, except on a GPU; a hopelessly
        slow kernel gets no samples beyond two runs. Without times, a kernel with a workspace is run twice.
        """
        problem = self._current()
        library = self._library(job.library)
        first_ns = self._run_checked(library, problem)
        if not self._has_times:
            error = problem.limits.error(problem.tensor(self._memory.kept()), problem.split(library))
            if library.workspace_bytes(problem.c):
                # With what the first run left in its workspace and output.
                with self._clock.phase(Phase.RUN):
                    code = library.run(problem.c, pointers(self._memory.pointers()))
                self._check_code(library, code)
                self._check_again(library, problem)
            return Reply(job.id, Status.VERIFIED, f"{ERROR_PREFIX}{error:.1e}{ERROR_SUFFIX}")
        times = self._time_samples(library, problem, first_ns, job.samples)
        self._check_again(library, problem)
        middle = timing.summarize(times.samples_ns).median_ns
        problem.best_ns = min(problem.best_ns, middle) if problem.best_ns > 0 else middle
        problem.anchor = problem.anchor or _Anchor(job.library, times.loops)
        return replace(times.reply(job), anchor_ns=self._anchor_ns(problem), message=self._memory.shortage())

    def time(self, job: Job) -> Reply:
        """Check and sample a kernel that was measured before, with a warm-up before each sample.

        On the host the first warm-up also serves as the run to check, and the previous output is checked: nothing comes
        between warm-up and sample. On a GPU the kernel's inputs may have been overwritten in the meantime, so they are
        checked first.
        """
        problem, library = self._current(), self._library(job.library)
        is_warm = self._memory.times_first_runs
        if is_warm:
            self._run(library, problem)
        else:
            self._run_checked(library, problem)
        launching = _NO_LAUNCHES if is_warm else self._stopwatch.launching(library)
        by_graph = launching.wants_graph(timing.MIN_SAMPLE_NS / job.loops)
        with self._clock.phase(Phase.TIME):
            samples: list[float] = []
            for number in range(job.samples):
                if number or not is_warm:
                    self._warm_up(library, problem, timing.MIN_SAMPLE_NS / job.loops, by_graph=by_graph)
                samples += self._time(library, problem, job.loops, 1, by_graph=by_graph)
            card = self._card()
        if is_warm:
            with self._clock.phase(Phase.VERIFY):
                complaint = self._judged(problem, problem.split(library))
            if complaint:
                raise KernelFailure(Status.WRONG_RESULT, f"in a later run than the first, {complaint}")
        else:
            self._check_again(library, problem)
        reply = _Times(tuple(samples), job.loops, launching, by_graph, card or None).reply(job)
        return replace(reply, anchor_ns=self._anchor_ns(problem), message=self._memory.shortage())

    def _anchor_ns(self, problem: _Problem) -> float:
        """Current time of the problem's anchor, in ns; 0 on the host, without an anchor, or if it fails."""
        anchor = problem.anchor
        if anchor is None or self._memory.times_first_runs:
            return 0.0
        with self._clock.phase(Phase.TIME), suppress(KernelFailure):
            library = self._library(anchor.library)
            by_graph = self._stopwatch.launching(library).wants_graph(timing.MIN_SAMPLE_NS / anchor.loops)
            return self._time(library, problem, anchor.loops, 1, by_graph=by_graph)[0]
        return 0.0

    def _current(self) -> _Problem:
        if self._problem is None:
            raise KernelFailure(Status.LAUNCH_ERROR, "there is no problem to run")
        return self._problem

    def _library(self, path: str) -> KernelLibrary:
        if path not in self._libraries:
            with self._clock.phase(Phase.LOAD):
                try:
                    library = KernelLibrary(loadable(path))
                except (OSError, AttributeError) as error:
                    raise KernelFailure(Status.LAUNCH_ERROR, f"cannot load the kernel: {error}") from error
                library.set_flush(*self._memory.flush_buffer())
                self._libraries[path] = library
        return self._libraries[path]

    def _prepare(self, library: KernelLibrary, problem: _Problem) -> None:
        """Check that the kernel supports the problem, and fill workspace and output."""
        if (count := len(self._memory.pointers())) != library.operand_count:
            reason = f"the kernel takes {library.operand_count} pointers, this operation's problems have {count}"
            raise KernelFailure(Status.LAUNCH_ERROR, reason)
        if refusal := library.unsupported(problem.c):
            raise KernelFailure(Status.UNSUPPORTED, refusal.decode(errors="replace"))
        with self._clock.phase(Phase.VERIFY):
            size = library.workspace_bytes(problem.c)
            if size < 0:
                raise KernelFailure(Status.LAUNCH_ERROR, f"the kernel requests {size} bytes of workspace")
            try:
                self._memory.provide_workspace(size)
            except (OSError, ValueError, OverflowError, HipMemoryError) as error:
                status = Status.OUT_OF_MEMORY if isinstance(error, HipMemoryError) else Status.LAUNCH_ERROR
                raise KernelFailure(status, f"no {size / 1e6:.0f} MB of workspace: {error}") from error
            self._memory.reset(size)
            self._stopwatch.launched = {0}

    def _run_checked(self, library: KernelLibrary, problem: _Problem) -> float:
        """Run a kernel once, check and keep its output; returns the wall time in ns."""
        first_ns, split = self._run(library, problem), problem.split(library)
        with self._clock.phase(Phase.VERIFY):
            complaint = self._judged(problem, split)
            is_spoilt = bool(complaint) and self._memory.repair_inputs()
        if is_spoilt:
            # This kernel or an earlier one overwrote the inputs: run it again to find out which.
            self._run(library, problem)
            with self._clock.phase(Phase.VERIFY):
                complaint = self._judged(problem, split)
                if self._memory.repair_inputs():
                    complaint = "the kernel overwrote its inputs" + (f"; {complaint}" if complaint else "")
        if complaint:
            raise KernelFailure(Status.WRONG_RESULT, complaint)
        with self._clock.phase(Phase.VERIFY):
            self._memory.keep_result()
        return first_ns

    def _check_again(self, library: KernelLibrary, problem: _Problem) -> None:
        """Compare the outputs of the last of several runs bitwise with the first; on a GPU, in every set of operands.

        A kernel that adds partial sums in undefined order gives different bits each time; all of them must be right.
        """
        with self._clock.phase(Phase.VERIFY):
            if where := self._memory.overrun():
                self._memory.repair_inputs()
                raise KernelFailure(Status.WRONG_RESULT, f"the kernel wrote out of bounds: {where}")
            split, launched = problem.split(library), self._stopwatch.launched
            if not split.repeats and self._memory.compare is not None:
                sets = self._memory.operand_sets()
                for number in launched - {0}:  # where it added to its results when it was timed
                    self._check_code(library, library.run(problem.c, pointers(sets[number])))
            for number in self._memory.changed(launched):
                self._check_changed(problem, split, number)

    def _check_changed(self, problem: _Problem, split: Split, number: int) -> None:
        """Check a set of operands whose output differs from that of the first run, or whose inputs changed."""
        complaint = self._complaint(problem, split, number)
        result = self._memory.result(number)
        count = differing(result, self._memory.kept())
        if not complaint and count and not split.repeats:
            return
        if self._memory.repair_inputs():
            raise KernelFailure(Status.WRONG_RESULT, f"the kernel overwrote its inputs; {complaint}")
        where = f"with operands in another place (set {number + 1}), " if number else ""
        if not split.repeats or (number and complaint):
            raise KernelFailure(Status.WRONG_RESULT, f"in a later run than the first, {where}{complaint}")
        reason = f"{where}{count} of {result.size} outputs differ between two runs, which is a race"
        raise KernelFailure(Status.NONDETERMINISTIC, reason + (f"; {complaint}" if complaint else ""))

    def _run(self, library: KernelLibrary, problem: _Problem) -> float:
        self._prepare(library, problem)
        arguments = pointers(self._memory.pointers())
        with self._clock.phase(Phase.RUN):
            start = perf_counter_ns()
            code = library.run(problem.c, arguments)
            first_ns = float(perf_counter_ns() - start)
        self._check_code(library, code)
        return first_ns

    def _check_code(self, library: KernelLibrary, code: int) -> None:
        if not code:
            return
        reason = library.error()
        message = f"the kernel returned {code}" + (f": {reason}" if reason else "")
        try:
            self._memory.probe()
            self._memory.repair_inputs()
        except HipError as error:
            raise HipError(f"{message}; then {error.message}") from error
        raise KernelFailure(Status.OUT_OF_MEMORY if reason.endswith(NO_MEMORY) else Status.LAUNCH_ERROR, message)

    def _judged(self, problem: _Problem, split: Split) -> str:
        """Reason why the kernel's result is wrong; empty if right."""
        where = self._memory.overrun()
        return f"the kernel wrote out of bounds: {where}" if where else self._complaint(problem, split)

    def _complaint(self, problem: _Problem, split: Split, number: int = 0) -> str:
        """Reason why the output of a set of operands is wrong, which the host states; empty if right."""
        if problem.on_gpu is not None and problem.on_gpu.holds(number, split):
            return ""
        return problem.complaint(self._memory.result(number), split)

    def _time_samples(self, library: KernelLibrary, problem: _Problem, first_ns: float, wanted: int) -> _Times:
        is_timed = self._memory.times_first_runs
        if not is_timed:
            self._run_again(library, problem)
            with self._clock.phase(Phase.CALIBRATE):
                first_ns = self._time(library, problem, 1, 1)[0]
        if timing.is_hopeless(first_ns, problem.best_ns):
            # A pause of the machine looks the same, but does not occur twice.
            with self._clock.phase(Phase.TIME):
                first_ns = self._time(library, problem, 1, 1)[0]
            if timing.is_hopeless(first_ns, problem.best_ns):
                return _Times((first_ns,), 1)
        warmed = self._warmed if is_timed else self._warmed_gpu
        return self._sampled(library, problem, wanted, warmed(library, problem, first_ns))

    def _warmed(self, library: KernelLibrary, problem: _Problem, first_ns: float) -> _Times:
        """Estimated time of a host kernel, after warming up."""
        estimate_ns = first_ns
        if warm_up := timing.warm_up_loops(first_ns):
            estimate_ns = self._run_again(library, problem)
            if warm_up > 1:
                with self._clock.phase(Phase.CALIBRATE):
                    estimate_ns = self._time(library, problem, warm_up, 1)[0]
        return _Times((estimate_ns,), 1)

    def _warmed_gpu(self, library: KernelLibrary, problem: _Problem, first_ns: float) -> _Times:
        """Estimated time of a GPU kernel, after warming up, and its timing method."""
        with self._clock.phase(Phase.CALIBRATE):
            estimate_ns = self._warm_up(library, problem, first_ns)
            launching = self._stopwatch.launching(library)
            if launching.wants_graph(estimate_ns):
                try:
                    graph_ns = self._warm_up(library, problem, estimate_ns, by_graph=True)
                    return _Times((graph_ns,), 1, launching, by_graph=True)
                except KernelFailure:
                    pass  # only the graph fails: the kernel is launched and checked without it
        return _Times((estimate_ns,), 1, launching)

    def _sampled(self, library: KernelLibrary, problem: _Problem, wanted: int, warmed: _Times) -> _Times:
        """Samples of a warm kernel with an estimated time."""
        (estimate_ns,) = warmed.samples_ns
        loops = timing.loops_for(estimate_ns)
        with self._clock.phase(Phase.TIME):
            count = timing.sample_count(estimate_ns, problem.best_ns, wanted)
            samples = self._time(library, problem, loops, count, by_graph=warmed.by_graph, few=self._stopwatch.last)
            if timing.is_too_few(samples, problem.best_ns, wanted):
                more = timing.sample_count(min(samples), 0.0, wanted)
                samples = self._time(library, problem, loops, more, by_graph=warmed.by_graph)
            card = self._card()
        return replace(warmed, samples_ns=samples, loops=loops, card=card or None)

    def _run_again(self, library: KernelLibrary, problem: _Problem) -> float:
        """Run a kernel a second time and compare its output; returns the wall time in ns."""
        again_ns = self._run(library, problem)
        self._check_again(library, problem)
        return again_ns

    def _warm_up(self, library: KernelLibrary, problem: _Problem, run_ns: float, *, by_graph: bool = False) -> float:
        warm_ns = self._stopwatch.warm_up(library, problem.c, run_ns, by_graph=by_graph)
        if not warm_ns:
            reason = "the GPU's events report the same time for n runs and for 2n"
            raise KernelFailure(Status.IMPOSSIBLE_TIME, reason)
        return warm_ns

    def _time(
        self, library: KernelLibrary, problem: _Problem, loops: int, samples: int, **how: Any
    ) -> tuple[float, ...]:
        times, reason = self._stopwatch.checked(library, problem.c, loops, samples, **how)
        if reason:
            raise KernelFailure(Status.IMPOSSIBLE_TIME, reason)
        return times


def answer(job: Job, work: Callable[[Job], Reply]) -> Reply:
    """Execute a job; failures of a kernel and lack of memory become replies, the last one after a GPU failure."""
    try:
        return work(job)
    except KernelFailure as failure:
        return Reply(job.id, failure.status, failure.message)
    except HipMemoryError as error:
        return Reply(job.id, Status.OUT_OF_MEMORY, error.message)
    except HipError as error:
        return Reply(job.id, Status.CRASH, error.message, is_last=True)
    except CkhError as error:
        return Reply(job.id, Status.LAUNCH_ERROR, error.message)
    except (MemoryError, OSError) as error:
        return Reply(job.id, Status.OUT_OF_MEMORY, f"out of memory: {error}")
