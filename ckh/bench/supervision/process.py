"""One worker process as used by the supervisor: jobs, replies, and its termination.

A kernel runs inside the worker and can read and write whatever the worker can. So a reply counts only if it comes from
the worker's process (as reported by the kernel's socket credentials), carries the random number of its job, and is one
that a correct worker can give to this job (`protocol.mismatch`). Anything else ends the worker.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.bench.supervision.guard import end_guarded, guarded
from ckh.bench.supervision.protocol import READY, Job, Reply, WorkerConfig, mismatch, reply_from_line
from ckh.errors import DeviceError
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.bench.devices.device import Device

_START_TIMEOUT_S = 120.0
_HANGS = "dmesg may say why the GPU hangs; reset it (amd-smi reset --gpureset -g 0) or restart the machine"
_STARTS = 3  # attempts to start a worker that is killed
_EXIT_TIMEOUT_S = 1.0
_TAIL_BYTES = 4096
_READ_BYTES = 1 << 16
_MOST_READ_BYTES = 1 << 20  # of a reply, and of the remaining stderr
_STOP_CHECK_S = 0.25
_MESSAGE_LENGTH = 300
_SHOWN = 80
_NUMBER_BITS = 62  # of the random numbers of jobs, which no kernel can guess
_CREDENTIALS = struct.Struct("3i")  # process, user, group

# Usually sent from outside: by the system when memory is short, or by a user.
_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class WorkerDiedError(Exception):
    """The worker ended; the message says how, with the last line of its stderr."""

    def __init__(self, message: str, *, was_killed: bool = False) -> None:
        super().__init__(message)
        self.was_killed = was_killed


class DeadlineError(Exception):
    """No reply before the deadline."""


class WorkerProcess:
    """A running worker that is ready for jobs. A worker killed while it starts is restarted, at most twice."""

    def __init__(self, device: Device, config: WorkerConfig) -> None:
        for left in reversed(range(_STARTS)):
            self._start(device, config)
            try:
                ready = self.receive(time.monotonic() + _START_TIMEOUT_S)
                break
            except WorkerDiedError as error:
                self.kill()
                if not (left and error.was_killed):
                    raise DeviceError(f"the worker does not start: {error}", code="worker-start") from error
            except DeadlineError as error:
                self.kill()
                raise DeviceError(
                    f"the worker does not start: {error}", _HANGS if config.is_hip else "", code="worker-start"
                ) from error
            except BaseException:
                self.kill()
                raise
        if ready.status is not Status.OK:
            self.kill()
            message, _, remedy = ready.message.partition("\n")
            raise DeviceError(f"no usable device: {message}", remedy)
        self.card = ready.card or {}  # sensor readings of its GPU

    def _start(self, device: Device, config: WorkerConfig) -> None:
        self._tail, self._received = bytearray(), bytearray()
        self._pid = 0  # of the worker itself, below the guard; 0: nothing received yet
        self._socket, its_end = socket.socketpair()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with its_end:
            # In a new session: a Ctrl-C is handled by the supervisor, which lets the current kernel finish.
            self._process = subprocess.Popen(
                guarded([*device.worker_command(), config.to_json()]),
                stdin=its_end.fileno(),
                stdout=its_end.fileno(),
                stderr=subprocess.PIPE,
                env=device.worker_environment(),
                start_new_session=True,
            )
        assert self._process.stderr is not None
        self._err = self._process.stderr.fileno()
        os.set_blocking(self._err, False)
        self._poll = select.poll()
        for descriptor in (self._socket.fileno(), self._err):
            self._poll.register(descriptor, select.POLLIN)
        # Jobs without a reply, as given and as sent; the worker's first line is the reply to a job that is not sent.
        self._jobs = deque([(READY, READY)])

    @property
    def is_busy(self) -> bool:
        """True if there are jobs whose replies were not received."""
        return bool(self._jobs)

    def send(self, job: Job) -> None:
        """Send a job; a dead worker is detected when receiving."""
        sent = replace(job, id=secrets.randbits(_NUMBER_BITS))
        self._jobs.append((job, sent))
        with suppress(OSError):
            self._socket.sendall(sent.to_line())

    def receive(self, deadline: float, should_give_up: Callable[[], bool] = lambda: False) -> Reply:
        """Receive the reply to the first unanswered job."""
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or should_give_up():
                raise DeadlineError("no reply in time")
            readable = self._poll.poll(max(1, int(1000 * min(left, _STOP_CHECK_S))))
            for descriptor, _ in readable:
                self._read(descriptor)
            if not readable and self._process.poll() is not None:  # even if another process keeps its pipes open
                raise self._ended()
        line = bytes(self._received[: self._received.index(b"\n")])
        del self._received[: len(line) + 1]
        return self._checked(line)

    def _checked(self, line: bytes) -> Reply:
        if not self._jobs:
            raise self._lied("the worker replied to no job")
        job, sent = self._jobs.popleft()
        try:
            reply = reply_from_line(line)
        except ValueError as error:
            raise self._lied(f"the worker answered nonsense: {line[:_SHOWN]!r}") from error
        if fault := mismatch(sent, reply):
            raise self._lied(f"the worker gave a reply that cannot be: {fault}")
        if self._received and not self._jobs:
            raise self._lied("the worker replied more than once")
        return replace(reply, id=job.id)

    def kill(self) -> None:
        """End the worker at once, with all its descendants.

        Processes kept alive by a driver are left; whether the next worker can run is checked when it starts.
        """
        end_guarded(self._process)
        if self._pid:  # in case the kernel has killed the guard
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            self._pid = 0
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._socket.close()

    def _lied(self, message: str) -> WorkerDiedError:
        self.kill()
        return WorkerDiedError(message)

    def _read(self, descriptor: int) -> None:
        if descriptor == self._err:
            self._read_stderr()
            return
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except ConnectionResetError:  # it ended without reading its job
            data, ancillary = b"", []
        if not data:
            raise self._ended()
        writer = _CREDENTIALS.unpack(ancillary[0][2])[0] if ancillary else 0
        self._pid = self._pid or writer
        if writer != self._pid:
            raise self._lied("a process that the kernel started wrote to the supervisor")
        self._received += data
        if len(self._received) > _MOST_READ_BYTES:
            raise self._lied(f"the worker answered nonsense: {bytes(self._received[:_SHOWN])!r}")

    def _ended(self) -> WorkerDiedError:
        """Reason why a worker that has closed its pipe does not reply: it has ended, or never will reply."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_TIMEOUT_S)
        code = self._process.poll()
        end_guarded(self._process)
        read = 0
        while read < _MOST_READ_BYTES and (count := self._read_stderr()):
            read += count
        if code is None:
            how = "closed its pipe and did not end"
        else:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        message = f"{how}; stderr: {lines[-1]}" if lines else how
        return WorkerDiedError(message[:_MESSAGE_LENGTH], was_killed=code is not None and -code in _KILLS)

    def _read_stderr(self) -> int:
        """Read from stderr; returns the number of bytes."""
        try:
            data = os.read(self._err, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            with suppress(KeyError):  # the end is seen twice if stderr closes before the socket does
                self._poll.unregister(self._err)
        self._tail += data
        del self._tail[:-_TAIL_BYTES]
        return len(data)
