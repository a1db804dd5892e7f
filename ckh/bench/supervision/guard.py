"""Run a command so that no process it starts outlives it, or its caller.

A guard is a waiting process between the caller and a worker or compiler. Everything that the command starts remains its
descendant, in whichever session (PR_SET_CHILD_SUBREAPER). When the command ends, on request, and when the caller dies,
the guard kills all descendants, and exits with the command's status.

This file is also the guard's program (`python -I -S guard.py PARENT COMMAND...`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM)
_NOT_FOUND = 127  # the exit code used by shells
_PARENT_FIELD = 1  # field of /proc/PID/stat after the program's name

_KILL_TIMEOUT_S = 5.0  # a driver may keep a process from ending
_END_TIMEOUT_S = 10.0
_PAUSE_S = 0.002


def guarded(command: list[str]) -> list[str]:
    """Command line that runs a command below a guard, which ends with the thread that started it."""
    from ckh.files.child import bare_command  # the guard itself imports nothing of ckh

    return bare_command(__file__, str(os.getpid()), *command)


def end_guarded(process: subprocess.Popen[bytes]) -> None:
    """End a guard and its descendants; processes kept alive by a driver are left."""
    import subprocess  # not at module level, as the guard itself must start quickly

    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)  # the command may have stopped it
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_TIMEOUT_S)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _guard(parent: int, command: list[str]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    die_with_parent(parent, signal.SIGTERM)
    adopt_orphans()
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, guard, before)
    # The command has its own pipes: their readers must see when it closes them.
    for descriptor in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    status = _wait(child)
    _kill_all()
    _end_as(status)


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Send this process a signal when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent died before
        os._exit(1)


def _become(command: list[str], guard: int, mask: set[int | signal.Signals]) -> None:
    """Replace this process, in a new session: signals to its process group do not reach the guard."""
    os.setsid()
    die_with_parent(guard, signal.SIGKILL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, which a program would inherit
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(command[0], command)  # noqa: S606 - there is no shell, on purpose
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    os._exit(_NOT_FOUND)


def _wait(child: int) -> int:
    """Exit status of the command, or that of a SIGTERM sent to the guard."""
    while signal.sigwait(_SIGNALS) != signal.SIGTERM:
        with suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == child:
                    return reaped[1]
    return int(signal.SIGTERM)


def _kill_all() -> None:
    """Kill the descendants of this process until there are none."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            folders = Path("/proc").iterdir()
            for pid in [int(folder.name) for folder in folders if _parent_of(folder) == os.getpid()]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE_S)


def _parent_of(folder: Path) -> int:
    """Parent of a process, given its folder below /proc; 0 if the process has ended or does not exist."""
    if not folder.name.isdecimal():
        return 0
    try:
        return int((folder / "stat").read_bytes().rpartition(b")")[2].split()[_PARENT_FIELD])
    except (OSError, IndexError):
        return 0


def _end_as(status: int) -> None:
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2:])
