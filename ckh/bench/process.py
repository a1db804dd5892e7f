"""One worker process as the supervisor sees it: lines in, lines out, and its end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ckh.bench.protocol import Job, Reply, WorkerConfig, reply_from_line
from ckh.data.schema import Status
from ckh.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.bench.device import Device

_START_TIMEOUT_S = 120.0
_EXIT_TIMEOUT_S = 1.0
_KILL_TIMEOUT_S = 10.0
_TAIL_BYTES = 4096
_READ_BYTES = 1 << 16
_STOP_CHECK_S = 0.25
_MESSAGE_LENGTH = 300


class WorkerDiedError(Exception):
    """The worker ended; the message says how, with the last line of its stderr."""


class DeadlineError(Exception):
    """No reply came in time."""


class WorkerProcess:
    """A running worker that is ready for jobs.

    Raises:
        DeviceError: it cannot be started.
    """

    def __init__(self, device: Device, config: WorkerConfig) -> None:
        self._tail = bytearray()
        self._received = bytearray()
        # In a session of its own: a Ctrl-C is for the supervisor, which lets the kernel at work finish.
        self._process = subprocess.Popen(
            [*device.worker_command(), config.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=device.worker_environment(),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin.fileno()
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        os.set_blocking(self._err, False)
        self._poll = select.poll()
        for descriptor in (self._out, self._err):
            self._poll.register(descriptor, select.POLLIN)
        try:
            ready = self.receive(time.monotonic() + _START_TIMEOUT_S)
        except (WorkerDiedError, DeadlineError) as error:
            self.kill()
            raise DeviceError(f"the worker does not start: {error}") from error
        if ready.status is not Status.OK:
            self.kill()
            raise DeviceError(f"no usable device: {ready.message}")

    def send(self, job: Job) -> None:
        """Hand over a job; that the worker is dead is found out when receiving."""
        with suppress(BrokenPipeError):
            os.write(self._stdin, job.to_line())

    def receive(self, deadline: float, should_give_up: Callable[[], bool] = lambda: False) -> Reply:
        """The next reply.

        Raises:
            WorkerDiedError: there will be none.
            DeadlineError: it did not come by `deadline` (of time.monotonic), or `should_give_up` said so.
        """
        while (end := self._received.find(b"\n")) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or should_give_up():
                raise DeadlineError("no reply in time")
            for descriptor, _ in self._poll.poll(max(1, int(1000 * min(left, _STOP_CHECK_S)))):
                self._read(descriptor)
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        try:
            return reply_from_line(line)
        except (ValueError, KeyError, TypeError) as error:
            self.kill()
            raise WorkerDiedError(f"the worker answered nonsense: {line[:80]!r}") from error

    def kill(self) -> None:
        """End it at once. One that a driver does not let go is left behind: whether the next can work is tried then."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _read(self, descriptor: int) -> None:
        if descriptor == self._err:
            self._read_stderr()
            return
        data = os.read(self._out, _READ_BYTES)
        if data:
            self._received += data
            return
        code = self._end()
        while self._read_stderr():
            pass
        raise WorkerDiedError(self._obituary(code))

    def _end(self) -> int:
        """The exit code of a process that closed its stdout: it is about to end, or never will."""
        try:
            return self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_TIMEOUT_S)
            return -signal.SIGKILL

    def _read_stderr(self) -> bool:
        try:
            data = os.read(self._err, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            with suppress(KeyError):  # the end is met twice when stderr closes before stdout does
                self._poll.unregister(self._err)
            return False
        self._tail += data
        del self._tail[:-_TAIL_BYTES]
        return True

    def _obituary(self, code: int) -> str:
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        return (f"{how}; stderr: {lines[-1]}" if lines else how)[:_MESSAGE_LENGTH]
