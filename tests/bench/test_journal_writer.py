"""What the journal's writer leaves on the disk when the disk is full, a process is killed, or two write at once."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest

from ckh.data.journal import EndRecord, JournalWriter, ResultRow, RunRecord, read_journal
from ckh.data.schema import HARDWARE, Status
from ckh.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = RunRecord(
    "run",
    "0",
    "now",
    "host",
    "host",
    "cpu",
    1,
    dict.fromkeys(HARDWARE, 1),
    "g++",
    ("-O3",),
    0,
    5,
    "f",
    "p",
    "k",
    "fp32",
)
ROWS = [
    ResultRow("run", f"problem {i}", "kernel", Status.OK, "", 1.5, 1.25, 0.5, (1.5e6, 1.25e6), 3, time=7.0)
    for i in range(3)
]


def write_rows(folder: Path, *rows: ResultRow) -> bytes:
    """A journal with these rows; its content."""
    writer = JournalWriter(folder)
    writer.start_run(RUN)
    for row in rows:
        writer.add(row)
    writer.close()
    return writer.path.read_bytes()


def fill_disk_after(count: int) -> Callable[[int, bytes], int]:
    """An os.write for a disk with so many bytes left; the last write is a partial one."""
    write, left = os.write, [count]

    def limited(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[: left[0]])
        left[0] -= written
        return written

    return limited


def test_all_that_is_written_is_read_back(tmp_path: Path) -> None:
    """Run, rows and end come back as they were, in their order."""
    writer = JournalWriter(tmp_path)
    end = EndRecord("run", "complete", 1.5, {"compile": 0.5})
    failure = ResultRow("run", "problem", "kernel", Status.CRASH, "killed by SIGSEGV")
    writer.start_run(RUN)
    writer.add(*ROWS, failure)
    writer.end_run(end)
    writer.close()
    journal = read_journal(tmp_path)
    assert (journal.runs, journal.rows, journal.ends) == ((RUN,), (*ROWS, failure), (end,))


def test_a_row_survives_without_closing(tmp_path: Path) -> None:
    """A row is in the file as soon as it is added, whatever becomes of the process."""
    writer = JournalWriter(tmp_path)
    writer.start_run(RUN)
    for count, row in enumerate(ROWS, 1):
        writer.add(row)
        assert len(read_journal(tmp_path).rows) == count
    writer.close()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in a row the disk is full, DataError says so and exactly the rows before it are in the file."""
    before = write_rows(tmp_path, *ROWS[:2])
    size = len(before) - before.rfind(b"\n", 0, -1) - 1
    for count in (0, 1, size // 2, size - 1):
        writer = JournalWriter(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fill_disk_after(count))
            with pytest.raises(DataError, match=r"cannot write .*journal\.jsonl: No space left on device") as caught:
                writer.add(ROWS[2])
        writer.close()
        assert "--resume" in caught.value.hint
        assert writer.path.read_bytes() == before


def test_rows_of_one_piece_are_written_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full after the first of two rows, neither is kept."""
    before = write_rows(tmp_path, ROWS[0])
    size = len(before) - before.rfind(b"\n", 0, -1) - 1
    writer = JournalWriter(tmp_path)
    monkeypatch.setattr(os, "write", fill_disk_after(size + 10))
    with pytest.raises(DataError):
        writer.add(*ROWS[1:])
    writer.close()
    assert writer.path.read_bytes() == before


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes a few bytes at a time loses nothing."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    write_rows(tmp_path, *ROWS)
    assert read_journal(tmp_path).rows == tuple(ROWS)


def test_a_last_line_cut_anywhere_reads_as_the_rows_before(tmp_path: Path) -> None:
    """Of a row cut at any byte, nothing is read; only without its line's end it is whole."""
    content = write_rows(tmp_path, *ROWS)
    start = content.rfind(b"\n", 0, -1) + 1
    path = tmp_path / "journal.jsonl"
    for end in range(start, len(content)):
        path.write_bytes(content[:end])
        complete = 3 if end == len(content) - 1 else 2
        assert len(read_journal(tmp_path).rows) == complete, end


def test_a_last_line_cut_anywhere_is_mended(tmp_path: Path) -> None:
    """A writer cuts off what is left of a row, and its own rows follow on a line of their own."""
    content = write_rows(tmp_path, *ROWS)
    start = content.rfind(b"\n", 0, -1) + 1
    path = tmp_path / "journal.jsonl"
    for end in range(start, len(content) + 1):
        path.write_bytes(content[:end])
        writer = JournalWriter(tmp_path)
        writer.add(ROWS[0])
        writer.close()
        kept = ROWS if end >= len(content) - 1 else ROWS[:2]
        assert read_journal(tmp_path).rows == (*kept, ROWS[0]), end


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """Damage that no kill explains is not skipped: the message has the line's number."""
    lines = write_rows(tmp_path, *ROWS).splitlines(keepends=True)
    lines[2] = lines[2][:20] + b"\n"
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=r"journal\.jsonl:3: damaged line"):
        read_journal(tmp_path)


def test_only_one_process_writes(tmp_path: Path) -> None:
    """A second writer is refused until the first has closed the journal."""
    first = JournalWriter(tmp_path)
    with pytest.raises(UsageError, match="another run writes"):
        JournalWriter(tmp_path)
    first.close()
    JournalWriter(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """A file where the folder should be gives a DataError."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="cannot write"):
        JournalWriter(tmp_path / "file")


def test_numbers_that_are_none_are_never_written(tmp_path: Path) -> None:
    """NaN is not JSON: a row with it is refused and leaves no trace."""
    writer = JournalWriter(tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        writer.add(ResultRow("run", "problem", "kernel", Status.OK, latency_ms=float("nan")))
    writer.start_run(RUN)
    writer.close()
    assert [json.loads(line)["kind"] for line in writer.path.read_text(encoding="utf-8").splitlines()] == ["run"]
