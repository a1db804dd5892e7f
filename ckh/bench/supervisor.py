"""Keeps one warm worker per device, and turns its crashes and hangs into results.

Jobs are sent a few ahead, so that the worker never waits; it does them in order, so the first job without a reply is
the one at work, and each has its own deadline from the moment the one before it was answered.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.bench.process import DeadlineError, WorkerDiedError, WorkerProcess
from ckh.bench.protocol import Job, Op, Reply, WorkerConfig
from ckh.data.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from ckh.bench.device import Device

_AHEAD = 6  # jobs in the pipe
_STOP_GRACE_S = 2.0
_DOUBTFUL = (Status.CRASH, Status.LAUNCH_ERROR)
_SETUP_TIMEOUTS = 4  # inputs and reference may take as long as this many kernels


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """`timeout_s` is the deadline of one kernel on one problem, all of its runs together."""

    timeout_s: float
    worker: WorkerConfig


class Supervisor:
    """Runs jobs on a device whatever they do to the worker. Use it as a context manager.

    `should_stop` is asked all the time; once it says yes, the jobs in the pipe get two seconds, and no new ones follow.
    """

    def __init__(self, device: Device, options: SupervisorOptions, should_stop: Callable[[], bool]) -> None:
        self._device = device
        self._options = options
        self._should_stop = should_stop
        self._worker: WorkerProcess | None = None
        self._set_up = ""  # the problem that the worker has
        self._fresh = True  # whether no kernel ran in this worker yet
        self._stopped_at: float | None = None
        self.phase_s: dict[str, float] = {}
        self.restarts = -1

    def __enter__(self) -> Supervisor:  # noqa: PYI034 - Self is not in Python 3.10
        """Start nothing yet: the worker starts with the first job."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the worker."""
        self._drop_worker()

    def run(self, setup: Job, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Do jobs on the problem of `setup`; yields each with its reply, in order, until all are done or stopped."""
        waiting, sent = deque(jobs), deque[Job]()
        best_ns = setup.best_ns
        retried: Job | None = None
        while waiting or sent:
            if not self._stopping() and self._set_up != setup.problem and not sent:
                failure = self._prepare(replace(setup, best_ns=best_ns))
                if failure is not None:
                    yield from ((job, replace(failure, id=job.id)) for job in waiting)
                    return
            self._fill(waiting, sent)
            if not sent:
                return
            fresh = self._fresh
            reply = self._next_reply(sent[0], self._options.timeout_s)
            if reply is None:
                return
            self._fresh = False
            job = sent.popleft()
            # An earlier kernel may have left the worker broken, or without memory: only a failure in a new one counts.
            is_doubtful = reply.status in _DOUBTFUL and not fresh and job is not retried
            if is_doubtful:
                self._drop_worker()
            if not self._set_up:  # the worker is gone: what was in the pipe is done by the next one
                waiting.extendleft(reversed(sent))
                sent.clear()
            if is_doubtful:
                retried = job
                waiting.appendleft(job)
                continue
            if reply.status is Status.OK and job.op is Op.MEASURE:
                fastest = min(reply.samples_ns)
                best_ns = min(best_ns, fastest) if best_ns > 0 else fastest
            yield job, reply

    def _stopping(self) -> bool:
        if self._stopped_at is None and self._should_stop():
            self._stopped_at = time.monotonic()
        return self._stopped_at is not None

    def _grace_is_over(self) -> bool:
        return self._stopping() and time.monotonic() > (self._stopped_at or 0.0) + _STOP_GRACE_S

    def _prepare(self, setup: Job) -> Reply | None:
        """Have the worker make inputs and reference, if need be a new one; the reply if that failed."""
        failure = self._set_up_problem(setup)
        if failure is not None and not self._fresh:
            self._drop_worker()
            failure = self._set_up_problem(setup)
        return failure

    def _set_up_problem(self, setup: Job) -> Reply | None:
        if self._worker is None:
            self._worker = WorkerProcess(self._device, self._options.worker)
            self._fresh = True
            self.restarts += 1
        self._worker.send(setup)
        reply = self._next_reply(setup, _SETUP_TIMEOUTS * self._options.timeout_s)
        if reply is None:
            return None
        if reply.status is not Status.OK:
            return replace(reply, status=Status.LAUNCH_ERROR, message=f"no inputs and reference: {reply.message}")
        self._set_up = setup.problem
        return None

    def _fill(self, waiting: deque[Job], sent: deque[Job]) -> None:
        while waiting and len(sent) < _AHEAD and not self._stopping() and self._worker is not None:
            self._worker.send(waiting[0])
            sent.append(waiting.popleft())

    def _next_reply(self, job: Job, timeout_s: float) -> Reply | None:
        """The reply to the job at work, made up if the worker cannot give one; None when stopped."""
        assert self._worker is not None
        try:
            reply = self._worker.receive(time.monotonic() + timeout_s, self._grace_is_over)
        except WorkerDiedError as error:
            reply = Reply(job.id, Status.CRASH, str(error))
        except DeadlineError:
            if self._grace_is_over():
                self._drop_worker()
                return None
            reply = Reply(job.id, Status.TIMEOUT, f"no result within {timeout_s:g} s")
        if reply.seconds is None:
            self._drop_worker()
        else:
            for phase, seconds in reply.seconds.items():
                self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        return reply

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._worker, self._set_up = None, ""
