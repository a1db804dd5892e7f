"""Keeps one warm worker per device, and turns its crashes and hangs into results.

Jobs are sent a few ahead, so that the worker never waits. It executes them in order, so the first job without a reply
is the current one; its deadline starts when the previous job is answered.

The anchor of a problem, its first right kernel, checks that all its kernels were measured at one GPU clock: the worker
times the anchor again after each kernel, for half a millisecond. Kernels whose anchor time differs from the current one
were measured at another clock, and are remeasured.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from ckh.bench.supervision.process import DeadlineError, WorkerDiedError, WorkerProcess
from ckh.bench.supervision.protocol import HIP, Job, Op, Reply, WorkerConfig
from ckh.errors import DeviceError
from ckh.hardware.gpus import detect_gpu_arch
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from types import TracebackType

    from ckh.bench.devices.device import Device

_AHEAD = 6  # jobs in the pipe
_STOP_GRACE_S = 2.0
_DOUBTFUL = (Status.CRASH, Status.TIMEOUT, Status.LAUNCH_ERROR, Status.OUT_OF_MEMORY, Status.IMPOSSIBLE_TIME)
_SETUP_TRIES = 3  # attempts if workers are killed
_SETUP_TIMEOUTS = 4  # timeout of preparing inputs and reference, in timeouts of a kernel
_QUARANTINED = (Status.CRASH, Status.TIMEOUT, Status.NONDETERMINISTIC)
_NOTHING = ("", "")
# Texts of hipErrorInvalidDeviceFunction and hipErrorNoBinaryForGpu, and their names in older runtimes.
_NO_GPU_CODE = re.compile("invalid device function|no kernel image is available|hipError(InvalidDeviceF|NoBinaryForG)")
_QUARANTINE_PROBLEMS = 2  # number of problems with such a failure before a kernel is quarantined


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """Options of a supervisor; `timeout_s` is the timeout of a kernel on a problem, for all of its runs."""

    timeout_s: float
    worker: WorkerConfig


class _Quarantine:
    """Kernels, by library, that are no longer run.

    Kernels that crash or hang on every problem only cost time, or the device. Kernels with races may be right by chance
    on the next problem, and must not be trusted.
    """

    def __init__(self) -> None:
        self._problems: dict[str, dict[str, Status]] = {}

    def record(self, library: str, problem: str, status: Status) -> None:
        """Record a crash or hang of a kernel in a new worker, or a race."""
        if status in _QUARANTINED:
            self._problems.setdefault(library, {})[problem] = status

    def answer(self, job: Job) -> Reply | None:
        """Reply to a job of a quarantined kernel; None if it is not quarantined."""
        problems = self._problems.get(job.library, {})
        if len(problems) < _QUARANTINE_PROBLEMS:
            return None
        races = Status.NONDETERMINISTIC in problems.values()
        message = f"quarantined: {'nondeterministic' if races else 'crashed'} on {' and '.join(problems)}"
        return Reply(job.id, Status.NONDETERMINISTIC if races else Status.CRASH, message)


@dataclass(slots=True)
class _Run:
    """Jobs on a problem, or without one: pending, sent, and a failure to confirm."""

    setup: Job | None
    waiting: deque[Job]
    sent: deque[Job] = field(default_factory=deque)
    doubt: tuple[Job, Reply] | None = None

    @property
    def problem(self) -> str:
        return "" if self.setup is None else self.setup.problem

    def learn(self, job: Job, reply: Reply) -> None:
        """Record the best time and the anchor for the next worker."""
        if self.setup is None or reply.status is not Status.OK or job.op is not Op.MEASURE:
            return
        self.setup = with_anchor(self.setup, job.library, reply)
        fastest, best_ns = min(reply.samples_ns), self.setup.best_ns
        if best_ns <= 0 or fastest < best_ns:
            self.setup = replace(self.setup, best_ns=fastest)


class Supervisor:
    """Runs jobs on a device, robust against crashes and hangs of the worker. Use it as a context manager.

    A kernel that crashed, hung or raced on two problems is not run any more: its jobs are answered immediately, as
    crashes or nondeterministic.

    `should_stop` is polled; once it returns True, jobs in the pipe get two seconds, and no new ones follow.
    """

    def __init__(self, device: Device, options: SupervisorOptions, should_stop: Callable[[], bool]) -> None:
        self._device = device
        self._options = options
        self._should_stop = should_stop
        self._worker: WorkerProcess | None = None
        self._set_up = _NOTHING  # the worker's current problem, and the folder of its operands
        self._worked: set[str] = set()  # problems that a worker could set up
        self._fresh = True  # whether no kernel has run in this worker yet
        self._was_killed = False  # whether the last worker was killed, usually from outside
        self._quarantine = _Quarantine()
        self._stopped_at: float | None = None
        self.node = ""
        self.phase_s: dict[str, float] = {}
        self.restarts = -1

    def __enter__(self) -> Supervisor:  # noqa: PYI034 - Self is not in Python 3.10
        """Start nothing: a worker starts with the first job."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the worker."""
        self._drop_worker()

    def run(self, setup: Job | None, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Run jobs on the problem of `setup`; yields each with its reply, in order, until done or stopped."""
        if self._worker is not None and self._worker.is_busy:  # the last caller did not consume all replies
            self._drop_worker()
        run = _Run(setup, deque(jobs))
        while run.waiting or run.sent:
            if not run.sent and not self._stopping():
                yield from self._answer_or_prepare(run)
            self._fill(run)
            if not run.sent:
                return
            fresh = self._fresh
            reply = self._next_reply(run.sent[0], self._options.timeout_s)
            if reply is None:
                return
            self._fresh = False
            job = run.sent.popleft()
            self._require_gpu_code(run, reply)
            is_retry = run.doubt is not None and run.doubt[0] is job
            is_doubtful = not is_retry and self._is_doubtful(reply, fresh=fresh)
            if is_doubtful:
                self._drop_worker()
            if self._worker is None:
                run.waiting.extendleft(reversed(run.sent))  # take back the jobs of a lost worker
                run.sent.clear()
            if is_doubtful:
                run.doubt = job, reply
                run.waiting.appendleft(job)
                continue
            run.doubt = None
            if run.problem:
                self._quarantine.record(job.library, run.problem, reply.status)
            run.learn(job, reply)
            yield job, reply

    def _require_gpu_code(self, run: _Run, reply: Reply) -> None:
        """Refuse a GPU that has run no kernel yet and finds no code for itself in this one."""
        if not run.problem or not self._options.worker.is_hip:
            return
        self._device.has_run |= reply.status not in (*_DOUBTFUL, Status.UNSUPPORTED)
        if self._device.has_run or not _NO_GPU_CODE.search(reply.message):
            return
        driver = f" ({gpu} by the driver)" if (gpu := detect_gpu_arch()) else ""
        version = os.environ.get("HSA_OVERRIDE_GFX_VERSION") or "not set"
        raise DeviceError(
            f"the GPU does not run kernels for {self._device.arch.name}: {reply.message}",
            f"name its architecture with --arch{driver}; where HSA_OVERRIDE_GFX_VERSION ({version}) is set, the one "
            "that it stands for",
            code="wrong-gpu",
        )

    def _is_doubtful(self, reply: Reply, *, fresh: bool) -> bool:
        """True if the kernel may not be the cause of a failure, which is then confirmed by a second run.

        An earlier kernel may have left the worker broken, or without memory; a signal may come from outside; and a GPU
        may have been reset, or hang, because of other processes.
        """
        if not fresh:
            return reply.status in _DOUBTFUL
        if self._options.worker.kind == HIP:
            return reply.status in (Status.CRASH, Status.TIMEOUT)
        return reply.status is Status.CRASH and self._was_killed

    def _answer_or_prepare(self, run: _Run) -> Iterator[tuple[Job, Reply]]:
        """Reply to jobs that need no worker; prepare a worker for the others."""
        while run.waiting and (reply := self._quarantine.answer(run.waiting[0])) is not None:
            yield run.waiting.popleft(), reply
        wanted = _NOTHING if run.setup is None else (run.setup.problem, run.setup.folder)
        if not run.waiting or (self._worker is not None and wanted in (_NOTHING, self._set_up)):
            return
        try:
            failure = self._prepare(run.setup)
        except DeviceError:
            if run.doubt is not None:
                yield run.doubt
            raise
        while failure is not None and run.waiting:
            job = run.waiting.popleft()
            yield job, replace(failure, id=job.id)

    def _stopping(self) -> bool:
        if self._stopped_at is None and self._should_stop():
            self._stopped_at = time.monotonic()
        return self._stopped_at is not None

    def _grace_is_over(self) -> bool:
        return self._stopping() and time.monotonic() > (self._stopped_at or 0.0) + _STOP_GRACE_S

    def _prepare(self, setup: Job | None) -> Reply | None:
        """Have a worker prepare inputs and reference, restarting it if needed; returns the reply of a failure."""
        for _ in range(_SETUP_TRIES):
            failure = self._set_up_problem(setup)
            if failure is None or (self._fresh and not self._was_killed):
                break
            self._drop_worker()
        was_possible = setup is not None and setup.problem in self._worked
        is_short = failure is not None and failure.status is Status.OUT_OF_MEMORY
        # The GPU rather than the problem is why a new worker lacks inputs and reference.
        if failure is not None and (failure.is_last or (was_possible and self._options.worker.is_hip and not is_short)):
            raise DeviceError(f"no usable device: in a new worker, {failure.message}")
        return failure

    def _set_up_problem(self, setup: Job | None) -> Reply | None:
        if self._worker is None:
            config = self._options.worker
            checks = self._device.checks_library() if config.is_hip and not config.load_only else ""
            self._worker = WorkerProcess(self._device, replace(config, checks=checks))
            self._fresh = True
            self.restarts += 1
        if setup is None:
            return None
        self._set_up = _NOTHING
        self._worker.send(setup)
        reply = self._next_reply(setup, _SETUP_TIMEOUTS * self._options.timeout_s)
        if reply is None:
            return None
        if reply.status is not Status.OK:
            status = Status.OUT_OF_MEMORY if reply.status is Status.OUT_OF_MEMORY else Status.LAUNCH_ERROR
            return replace(reply, status=status, message=f"no inputs and reference: {reply.message}")
        self._set_up = setup.problem, setup.folder
        self._worked.add(setup.problem)
        return None

    def _fill(self, run: _Run) -> None:
        waiting, sent = run.waiting, run.sent
        while waiting and len(sent) < _AHEAD and not self._stopping() and self._worker is not None:
            if self._quarantine.answer(waiting[0]) is not None:
                return  # answered in its turn, when the pipe is empty
            self._worker.send(waiting[0])
            sent.append(waiting.popleft())

    def _next_reply(self, job: Job, timeout_s: float) -> Reply | None:
        """Reply to the current job, synthesized if the worker cannot give one; None when stopped."""
        assert self._worker is not None
        self._was_killed = False
        try:
            reply = self._worker.receive(time.monotonic() + timeout_s, self._grace_is_over)
        except WorkerDiedError as error:
            self._was_killed = error.was_killed
            reply = Reply(job.id, Status.CRASH, str(error))
        except DeadlineError:
            if self._grace_is_over():
                self._drop_worker()
                return None
            reply = Reply(job.id, Status.TIMEOUT, f"no result within {timeout_s:g} s")
        for phase, seconds in (reply.seconds or {}).items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        if reply.seconds is None or reply.is_last:
            self._drop_worker()
        return reply

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._worker, self._set_up = None, _NOTHING


MOVED = 0.05  # relative change of the anchor's time, above its own spread
MAX_PASSES = 3  # over the kernels of a problem, which an oscillating clock may have remeasured again and again
_LAST_LOOKS = 3  # whose median is robust against other work on the GPU that disturbs one of them


def with_anchor(setup: Job, library: str, reply: Reply) -> Job:
    """Set the anchor of a problem once a kernel is measured, so that the next worker uses the same one."""
    if setup.library or reply.status is not Status.OK:
        return setup
    return replace(setup, library=library, loops=reply.loops)


class Looks:
    """Times of the anchor before and after each kernel of a problem, given by its name."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, float]] = {}  # in order of measurement
        self._last_ns = 0.0

    def add(self, kernel: str, reply: Reply) -> None:
        """Add a reply; ignored without a time of the anchor."""
        self._looks.pop(kernel, None)
        if reply.anchor_ns:
            before_ns = self._last_ns or median(reply.samples_ns)  # of the anchor itself
            self._looks[kernel] = before_ns, reply.anchor_ns
            self._last_ns = reply.anchor_ns

    def add_rounds(self, kernels: Collection[str], replies: Sequence[Reply]) -> None:
        """Add replies of kernels that were timed in rounds: at one clock, unless it changed meanwhile."""
        looks = [reply.anchor_ns for reply in replies if reply.anchor_ns]
        if not looks or not self._last_ns:
            return
        behind_ns = median(looks)
        for kernel in [kernel for kernel in self._looks if kernel in kernels]:
            del self._looks[kernel]
            self._looks[kernel] = self._last_ns, behind_ns
        self._last_ns = behind_ns

    def moved(self) -> frozenset[str]:
        """Kernels measured at another clock than the last ones, or while it changed."""
        looks = list(self._looks.values())
        if not looks:
            return frozenset()
        now_ns = median(behind for _, behind in looks[-_LAST_LOOKS:])
        return frozenset(name for name, pair in self._looks.items() if any(abs(ns / now_ns - 1) > MOVED for ns in pair))
