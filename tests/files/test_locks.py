"""Locks on file systems with and without lock support."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.data.journal import JournalWriter
from ckh.errors import OutputError, UsageError
from ckh.files.locks import FileLock
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_HOLDING = """
import errno, fcntl, os, sys
from pathlib import Path
from ckh.files.locks import FileLock

def none(*_):
    raise OSError(errno.ENOLCK, "none")

fcntl.flock = none
print(FileLock(Path(sys.argv[1])).take(0), flush=True)
sys.stdin.read()
"""


def _fail(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(_file: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.fixture(params=["locks", *NO_LOCKS])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with locks, and those without."""
    if request.param != "locks":
        _fail(monkeypatch, request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file to lock."""
    (tmp_path / "file").touch()
    return tmp_path / "file"


@pytest.fixture
def holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the file's lock on a file system without locks."""
    command = [sys.executable, "-c", _HOLDING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


@pytest.mark.usefixtures("system")
def test_a_lock_has_one_holder(path: Path) -> None:
    """Its holder can take it again, for another file at the path too; others can when it is released."""
    first, second, file, other = FileLock(path), FileLock(path), os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    assert first.take(file)
    assert first.take(file)
    assert not second.take(other)
    os.close(file)
    first.release()
    assert second.take(other)
    first.release()
    assert not FileLock(path).take(os.open(path, os.O_RDWR))
    os.close(other)
    second.release()
    assert [item.name for item in path.parent.iterdir()] == ["file"]


def test_only_locks_of_dead_processes_are_broken(
    path: Path, holding: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder is named; once it was killed, the next process gets the lock at once."""
    _fail(monkeypatch, errno.ENOLCK)
    lock = FileLock(path)
    assert not lock.take(0)
    assert lock.holder() == f"process {holding.pid} on {os.uname().nodename}"
    holding.kill()
    holding.wait()
    assert lock.take(0)
    assert lock.holder() == f"process {os.getpid()} on {os.uname().nodename}"


def test_a_lock_is_waited_for(path: Path, holding: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A process waits until the holder has ended."""
    _fail(monkeypatch, errno.ENOSYS)
    lock = FileLock(path)
    threading.Timer(0.5, holding.kill).start()
    lock.wait(0)
    assert holding.wait() != 0
    assert lock.holder().startswith(f"process {os.getpid()} ")


@pytest.mark.parametrize("text", ["", "12", "1 2 of-another-boot/pid:[1] node7\n", "x y z\n", "\udcff"])
def test_an_uninspectable_holder_keeps_its_lock(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine, before a reboot, or in a file being written, or of other content."""
    _fail(monkeypatch, errno.EOPNOTSUPP)
    lock = FileLock(path)
    lock.holder_path.write_bytes(text.encode(errors="surrogateescape"))
    assert not lock.take(0)
    assert lock.holder() == ("process 1 on node7" if "node7" in text else "")


def test_other_errors_are_raised(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing disk is not a file system without locks; a journal reports it in one line."""
    _fail(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        FileLock(path).take(0)
    with expect_refusal(OutputError, "unwritable", "journal.jsonl", "Input/output"):
        JournalWriter(path.parent / "run")


@pytest.mark.usefixtures("system")
def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    """On any file system the second run is refused, and only the journal remains."""
    writer = JournalWriter(tmp_path)
    with expect_refusal(UsageError, "in-use"):
        JournalWriter(tmp_path)
    writer.close()
    JournalWriter(tmp_path).close()
    assert [item.name for item in tmp_path.iterdir()] == ["journal.jsonl"]


def test_a_journal_names_the_process_that_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to delete if that process ended on another machine."""
    _fail(monkeypatch, errno.ENOLCK)
    holder = FileLock(tmp_path / "journal.jsonl").holder_path
    holder.write_text("12 34 of-another-boot node7\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        JournalWriter(tmp_path)
    assert "process 12 on node7" in caught.value.hint
    assert str(holder) in caught.value.hint


@pytest.mark.usefixtures("system")
def test_temporary_folders_of_live_processes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders used for compiling are not removed by other processes, and are gone at the end."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    cache = KernelCache()
    with cache.workshop() as first, cache.workshop() as second:
        assert {first, second} == set(cache.folder.iterdir())
    assert list(cache.folder.iterdir()) == []
