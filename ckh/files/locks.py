"""Exclusive file locks, also on file systems without locks, such as some NFS and Lustre mounts."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_HOLDER = ".holder"
_POLL_S = 0.2
_FIELDS = 4  # of the holder's line
_START_FIELD = 18  # of /proc/PID/stat, after the state
_ENDED = ("Z", "X")  # states of a process that has ended


class FileLock:
    """Lock of an open file, released when the file is closed or the process ends.

    On a file system without locks, a file beside it names the holder until `release`. If the holder dies without
    releasing it, the next process of its machine takes the lock; another machine cannot detect that, and respects the
    lock.
    """

    def __init__(self, path: Path) -> None:
        self.holder_path = path.with_name(path.name + _HOLDER)
        self._is_named = False  # whether the lock is held by the file beside

    def take(self, file: int) -> bool:
        """Lock an open file that is, or will be, at the path; False if another process or lock has it."""
        if self._is_named:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            self._is_named = self._take_name()
            return self._is_named
        return True

    def wait(self, file: int) -> None:
        """Lock an open file as soon as no other process has it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            while not self.take(file):
                time.sleep(_POLL_S)

    def holder(self) -> str:
        """Process and machine of the holder, if stated by a file; else empty."""
        fields = self._held_by().split()
        return f"process {fields[0]} on {fields[-1]}" if len(fields) == _FIELDS else ""

    def release(self) -> None:
        """Remove the file beside, if it is ours; a lock of the file system is released by closing the file."""
        if self._is_named:
            self._is_named = False
            self.holder_path.unlink(missing_ok=True)

    def _take_name(self) -> bool:
        while True:
            try:
                file = os.open(self.holder_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                if not self._remove_of_gone():
                    return False
                continue
            try:
                process = os.getpid()
                # The process, its start time, the system of its number, and the name of the machine.
                line = f"{process} {_start_of(process)} {_system()} {os.uname().nodename}\n"
                os.write(file, line.encode())
            finally:
                os.close(file)
            return True

    def _remove_of_gone(self) -> bool:
        """Remove the file of a process that has ended; False if it has not, or if that is unknown."""
        held_by = self._held_by()
        if not _is_gone(held_by):
            return held_by == "" and not self.holder_path.exists()
        taken = self.holder_path.with_name(f"{self.holder_path.name}.{os.urandom(8).hex()}")
        try:
            self.holder_path.rename(taken)
        except FileNotFoundError:
            return True
        if taken.read_text(encoding="utf-8") != held_by:  # another process was faster, and has the lock
            taken.rename(self.holder_path)
            return False
        taken.unlink()
        return True

    def _held_by(self) -> str:
        try:
            return self.holder_path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""


def _is_gone(line: str) -> bool:
    fields = line.split()
    if len(fields) != _FIELDS or fields[2] != _system() or not fields[0].isdecimal():
        return False
    return fields[1] != _start_of(int(fields[0]))


def _start_of(process: int) -> str:
    """Start time of a process, in clock ticks; "gone" if it does not exist or has ended."""
    try:
        state, *fields = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        return "gone" if state in _ENDED else fields[_START_FIELD]
    except (OSError, ValueError, IndexError):
        return "gone"


def _system() -> str:
    """Identifier of this boot of this machine and of this container, in which process numbers are unique."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return "unknown"
