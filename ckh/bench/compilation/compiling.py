"""Run a compiler, which may hang, write endless output, be killed, or succeed without writing a file."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.bench.supervision.guard import end_guarded, guarded
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_POLL_S = 0.2
_READ_BYTES = 1 << 16
_MOST_BYTES = 16 << 20  # of compiler output; the remarks on a CK Tile kernel have some kilobytes
_MESSAGE_LENGTH = 300
_SHELL_SIGNAL = 128  # a shell's exit code for a program ended by a signal is this plus the signal number
_SIGNALLED = tuple(_SHELL_SIGNAL + number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
# Messages of a compiler crash, and of errors in the source. Neither is searched in a stack dump, whose command line has
# options such as -Wno-error.
_CRASH = re.compile(r"LLVM ERROR:|error in backend|internal compiler error|Assertion .* failed")
_ERROR = re.compile(r"\b(?:error|Error|undefined reference|cannot find)\b")
_STACK_DUMP = re.compile(r"Stack dump|Program arguments:|#\d+ 0x|\d+\.\s|PLEASE (?:submit|ATTACH)")

# Messages of compiler drivers when a subprocess was killed or resources ran out: gcc's and clang's wording, then the
# system's error strings, which they repeat.
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_INTERRUPTION = re.compile(
    r"(?:Killed|Terminated|Hangup|Interrupt) signal terminated program"
    r"|unable to execute command: (?:Killed|Terminated|Hangup|Interrupt|Bus error|posix_spawn failed)"
    rf"|{_NO_ROOM.pattern}"
    r"|Cannot allocate memory|Resource temporarily unavailable|Too many open files|Stale file handle"
    r"|out of memory allocating|LLVM ERROR: out of memory|std::bad_alloc|memory exhausted"
)


@dataclass(frozen=True, slots=True)
class CompilerRun:
    """Result of a compiler; the message is the first useful line of an error, or the whole output on success.

    `cpu_s` is the CPU time of its processes; 0 if it did not finish.
    """

    status: Status
    message: str
    cpu_s: float


def run_compiler(
    command: list[str],
    source: Path,
    timeout_s: float,
    should_stop: Callable[[], bool],
    environ: Mapping[str, str] = os.environ,
) -> CompilerRun | None:
    """Run a compiler in the folder of its source, which also holds its temporary files; None when stopped.

    Its processes end with it, and with this process.
    """
    cpu_s = 0.0
    deadline = time.monotonic() + timeout_s
    with subprocess.Popen(
        guarded(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**environ, "TMPDIR": str(source.parent)},
        start_new_session=True,
    ) as process:
        try:
            said = _listen(process, deadline, should_stop)
            if said is not None:
                cpu_s = _reap(process)
        finally:
            end_guarded(process)
    if said is None and should_stop():
        return None
    if said is None:
        return CompilerRun(Status.COMPILE_TIMEOUT, f"the compiler took longer than {timeout_s:g} s", cpu_s)
    messages = said.decode(errors="replace")
    status, message = _status(process.returncode, messages), _message(process.returncode, messages, source)
    return CompilerRun(status, message, cpu_s)


def lacks_room(status: Status, message: str) -> bool:
    """True if a compiler failed because the disk is full, by its status and message."""
    return status is Status.COMPILE_INTERRUPTED and _NO_ROOM.search(message) is not None


def _listen(process: subprocess.Popen[bytes], deadline: float, should_stop: Callable[[], bool]) -> bytes | None:
    """Read a compiler's output until it ends, the first megabytes; None on timeout."""
    assert process.stderr is not None
    descriptor = process.stderr.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    said = bytearray()
    while not should_stop() and time.monotonic() < deadline:
        if not poll.poll(int(1000 * _POLL_S)):
            continue
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            return bytes(said)
        said += data[: _MOST_BYTES - len(said)]
    return None


def _reap(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process; returns the CPU seconds of it and of its own finished children."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def _status(code: int, messages: str) -> Status:
    if code == 0:
        return Status.OK
    is_interrupted = code < 0 or code in _SIGNALLED or _INTERRUPTION.search(messages)
    return Status.COMPILE_INTERRUPTED if is_interrupted else Status.COMPILE_ERROR


def _message(code: int, messages: str, source: Path) -> str:
    """Reason of a failure in one line; the whole output on success."""
    if code == 0:
        return messages
    said = (line.strip().removeprefix(f"{source}:") for line in messages.splitlines() if line.strip())
    folder = f"{source.parent}{os.sep}"  # temporary, and so long that it can hide the reason behind it
    lines = [line.replace(folder, "") for line in said if not _STACK_DUMP.match(line)]
    patterns = (_NO_ROOM, _INTERRUPTION, _CRASH, _ERROR)
    reason = next((line for pattern in patterns for line in lines if pattern.search(line)), "")
    signalled = -code if code < 0 else code - _SHELL_SIGNAL if code in _SIGNALLED else 0
    if signalled:
        ended = f"the compiler was killed by {signal.Signals(signalled).name}"
        return (f"{ended}: {reason}" if reason else ended)[:_MESSAGE_LENGTH]
    return (reason or next(iter(lines), f"the compiler ended with code {code}"))[:_MESSAGE_LENGTH]
