"""Files left by the journal's writer when the disk is full, a process is killed, or two write at once."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from ckh.data import journal as journal_module
from ckh.data.journal import (
    Damage,
    EndRecord,
    JournalWriter,
    PlanRecord,
    ResultRow,
    TaskRecord,
    iter_blocks,
    read_journal,
    row_at,
)
from ckh.errors import DataError, OutputError, UsageError
from ckh.schema import HARDWARE, Status
from tests.refusals import expect_refusal
from tests.runs import host_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = host_run(dict.fromkeys(HARDWARE, 1), run_id="run")
ROWS = [
    ResultRow("run", f"problem {i}", "kernel", Status.OK, "", 1.5, 1.25, 0.5, (1.5e6, 1.25e6), 3, time=7.0)
    for i in range(3)
]


RESULT = {"kind": "result", "run_id": "run", "problem": "p", "kernel": "k", "status": "ok"}
WRONG: list[dict[str, Any]] = [
    {"status": ["ok"]},
    {"status": "fine"},
    {"latency_ms": "1"},
    {"latency_ms": True},
    {"latency_ms": 10**400},
    {"samples_ns": 5},
    {"samples_ns": ["a"]},
    {"loops": 1.5},
    {"loops": 2**63},
    {"remeasured": 1},
    {"problem": {}},
    {"message": None},
    {"message": "\ud800"},
    {"unknown": 1},
]


def write_rows(folder: Path, *rows: ResultRow) -> bytes:
    """Write a journal with these rows; returns its content."""
    writer = JournalWriter(folder)
    writer.start_run(RUN)
    for row in rows:
        writer.add(row)
    writer.close()
    return writer.path.read_bytes()


def fill_disk_after(count: int) -> Callable[[int, bytes], int]:
    """An os.write for a disk with `count` free bytes; the last write is a partial one."""
    write, left = os.write, [count]

    def limited(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[: left[0]])
        left[0] -= written
        return written

    return limited


def test_everything_written_is_read_back(tmp_path: Path) -> None:
    """Run, rows and end are read back as written, in order."""
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
    """A row is in the file as soon as it is added, even if the process dies."""
    writer = JournalWriter(tmp_path)
    writer.start_run(RUN)
    for count, row in enumerate(ROWS, 1):
        writer.add(row)
        assert len(read_journal(tmp_path).rows) == count
    writer.close()


@pytest.mark.parametrize("rows", [1, 2])
def test_a_full_disk_leaves_no_half_line(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in rows added together the disk is full, the file has exactly what was there before."""
    before = write_rows(tmp_path, ROWS[0])
    size = len(before) - before.rfind(b"\n", 0, -1) - 1
    for count in (0, 1, size // 2, size - 1, *([size, size + 10] if rows > 1 else [])):
        writer = JournalWriter(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fill_disk_after(count))
            with expect_refusal(OutputError, "unwritable", "journal.jsonl", "No space left") as caught:
                writer.add(*ROWS[1 : 1 + rows])
        writer.close()
        assert "--resume" in caught.value.hint
        assert writer.path.read_bytes() == before


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes a few bytes at a time loses nothing."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    write_rows(tmp_path, *ROWS)
    assert read_journal(tmp_path).rows == tuple(ROWS)


def test_a_truncated_last_line_is_ignored_and_repaired(tmp_path: Path) -> None:
    """Of a row cut at any byte nothing is read, only without its newline it is complete; a writer's rows follow."""
    content = write_rows(tmp_path, *ROWS)
    start = content.rfind(b"\n", 0, -1) + 1
    path = tmp_path / "journal.jsonl"
    for end in range(start, len(content) + 1):
        path.write_bytes(content[:end])
        kept = tuple(ROWS if end >= len(content) - 1 else ROWS[:2])
        assert read_journal(tmp_path).rows == kept, end
        writer = JournalWriter(tmp_path)
        writer.add(ROWS[0])
        writer.close()
        assert read_journal(tmp_path).rows == (*kept, ROWS[0]), end


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """Damage that no kill explains is not skipped: the message has the line number."""
    lines = write_rows(tmp_path, *ROWS).splitlines(keepends=True)
    lines[2] = lines[2][:20] + b"\n"
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
    with expect_refusal(DataError, "damaged", "journal.jsonl:3"):
        read_journal(tmp_path)


def test_only_one_process_writes(tmp_path: Path) -> None:
    """A second writer is refused until the first has closed the journal."""
    first = JournalWriter(tmp_path)
    with expect_refusal(UsageError, "in-use"):
        JournalWriter(tmp_path)
    first.close()
    JournalWriter(tmp_path).close()


def test_an_uncreatable_folder_is_an_error(tmp_path: Path) -> None:
    """A file in place of the folder gives a DataError."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with expect_refusal(OutputError, "unwritable"):
        JournalWriter(tmp_path / "file")


def test_nan_is_never_written(tmp_path: Path) -> None:
    """NaN is not valid JSON: a row with it is refused and leaves no trace."""
    writer = JournalWriter(tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        writer.add(ResultRow("run", "problem", "kernel", Status.OK, latency_ms=float("nan")))
    writer.start_run(RUN)
    writer.close()
    assert [json.loads(line)["kind"] for line in writer.path.read_text(encoding="utf-8").splitlines()] == ["run"]


def test_a_journal_above_two_gigabytes_is_not_truncated(tmp_path: Path) -> None:
    """A file above the size of a single system read, 2 GiB, is kept; a truncated last line is removed.

    The file is sparse: between its rows there is a hole of 2.2 GB that takes no disk space.
    """
    head = write_rows(tmp_path, *ROWS)
    path = tmp_path / "journal.jsonl"
    hole = 2_200_000_000
    for half in (b"", b'{"kind": "result", "run_id": "ru'):
        with path.open("r+b") as file:
            file.truncate(len(head))
            file.seek(len(head) + hole)
            file.write(b"\n" + head[head.index(b"\n") + 1 :] + half)
        size = path.stat().st_size - len(half)
        assert path.stat().st_blocks * 512 < 1 << 20
        JournalWriter(tmp_path).close()
        assert path.stat().st_size == size
        with path.open("rb") as file:
            assert file.read(len(head)) == head
            file.seek(len(head) + hole)
            assert file.read() == b"\n" + head[head.index(b"\n") + 1 :]


def test_short_reads_truncate_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that reads seven bytes at a time finds the same last line; blocks are smaller than a line here."""
    content = write_rows(tmp_path, *ROWS)
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, start: read(file, min(count, 7), start))
    monkeypatch.setattr(journal_module, "_BLOCK", 50)
    path = tmp_path / "journal.jsonl"
    start = content.rfind(b"\n", 0, -1) + 1
    for end in (start, start + 1, start + 60, len(content) - 1, len(content)):
        path.write_bytes(content[:end])
        JournalWriter(tmp_path).close()
        assert path.read_bytes() == (content if end >= len(content) - 1 else content[:start]), end


def located(file: BinaryIO, path: Path) -> list[tuple[int, int, object]]:
    """Line, byte offset and content of each record."""
    blocks = iter_blocks(file, path, skip_damaged=True)
    return [
        (block.line + place, block.starts[place], record)
        for block in blocks
        for place, record in enumerate(block.records)
    ]


def test_overlong_lines_are_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line above the limit is not read into memory: it is one damaged line; the others keep their numbers."""
    content = write_rows(tmp_path, *ROWS)
    first, second, third, fourth = content.splitlines(keepends=True)
    path = tmp_path / "journal.jsonl"
    limit = len(first) + 10
    monkeypatch.setattr(journal_module, "_MOST_LINE", limit)
    for length in (limit, limit + 1, 3 * limit - 1, 3 * limit, 3 * limit + 1):
        path.write_bytes(first + b"x" * (length - 1) + b"\n" + second + third)
        with path.open("rb") as file:
            result = located(file, path)
            assert [row_at(file, start) for _, start, _ in result[2:]] == [record for _, _, record in result[2:]]
        numbers = [(line, type(record).__name__) for line, _, record in result]
        assert numbers == [(1, "RunRecord"), (2, "Damage"), (3, "ResultRow"), (4, "ResultRow")], length
        path.write_bytes(first + second + b"x" * length)
        assert len(read_journal(path).rows) == 1
    path.write_bytes(first + fourth)
    assert read_journal(path).rows == (ROWS[2],)


@pytest.mark.parametrize("full_after", [0, 1, 100, 1000])
def test_a_run_that_cannot_start_leaves_nothing(
    tmp_path: Path, full_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full before a new run's plan is written, neither file nor folder remains."""
    plan: list[PlanRecord | TaskRecord] = [
        PlanRecord("run", ("kernel",) * 100),
        TaskRecord("run", "problem", tuple(range(100))),
    ]
    writer = JournalWriter(tmp_path / "run")
    monkeypatch.setattr(os, "write", fill_disk_after(full_after))
    with expect_refusal(OutputError, "unwritable", "No space left"):
        writer.start_run(RUN, plan)
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_replace_another_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full while a journal is replaced, the old one is intact, and its lock is released."""
    before = write_rows(tmp_path, *ROWS)
    writer = JournalWriter(tmp_path, replace=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill_disk_after(10))
        with expect_refusal(OutputError, "unwritable", "No space left"):
            writer.start_run(RUN)
    writer.close()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]
    writer = JournalWriter(tmp_path, replace=True)
    writer.start_run(RUN)
    with expect_refusal(UsageError, "in-use"):
        JournalWriter(tmp_path)
    writer.add(ROWS[0])
    writer.close()
    assert read_journal(tmp_path).rows == (ROWS[0],)
    assert [path.name for path in tmp_path.iterdir()] == ["journal.jsonl"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]",
        "1",
        "null",
        '{"kind": []}',
        '{"kind": "result"}',
        *(json.dumps({**RESULT, **wrong}) for wrong in WRONG),
        '{"kind": "result", "run_id": "run", "loops": ' + "9" * 5000 + "}",
        json.dumps({"kind": "run", **asdict(RUN), "hardware": [1]}),
        json.dumps({"kind": "run", **asdict(RUN), "hardware": {"num_cus": "4"}}),
        json.dumps({"kind": "run", **asdict(RUN), "schema_version": True}),
        json.dumps({"kind": "task", "run_id": "run", "problem": "p", "kernels": [1.5]}),
        json.dumps({"kind": "end", "run_id": "run", "reason": "complete", "wall_s": 1, "phase_s": {"a": []}}),
    ],
)
def test_json_of_the_wrong_type_is_a_damaged_line(tmp_path: Path, text: str) -> None:
    """Any line is either a record or damage with its number, and the rows around it can be read."""
    content = write_rows(tmp_path, *ROWS).splitlines(keepends=True)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join([*content[:2], text.encode() + b"\n", *content[2:]]))
    with expect_refusal(DataError, "damaged", "journal.jsonl:3"):
        read_journal(path)
    with path.open("rb") as file:
        result = located(file, path)
        rows = [(line, row_at(file, start)) for line, start, record in result if isinstance(record, ResultRow)]
    assert rows == list(zip((2, 4, 5), ROWS, strict=True))
    assert [line for line, _, record in result if isinstance(record, Damage)] == [3]
