"""Journal of a bench run: append-only JSON Lines that survive kill -9.

A run begins with a line of its settings and device, followed by its plan, then one line per result, including failures.
A remeasured row replaces the earlier row of the same pair. If a problem was started on one device and measured again on
another, the rows of the first device are ignored.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from ckh.data.journal_records import (
    RUN_START,
    ChosenRecord,
    EndRecord,
    KernelRecord,
    PlanRecord,
    Record,
    ReferenceRecord,
    ResultRow,
    RunRecord,
    TaskRecord,
    decode_row,
    parse_record,
    record_line,
)
from ckh.errors import DataError, OutputError, UsageError
from ckh.files.locks import FileLock
from ckh.files.outputs import FileKind, refuse_planted
from ckh.files.paths import new_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = [
    "JOURNAL",
    "JOURNAL_NAME",
    "Block",
    "ChosenRecord",
    "Damage",
    "EndRecord",
    "Journal",
    "JournalWriter",
    "KernelRecord",
    "PlanRecord",
    "ReferenceRecord",
    "ResultRow",
    "RunRecord",
    "TaskRecord",
    "is_started",
    "iter_blocks",
    "journal_path",
    "read_journal",
    "records_of",
    "row_at",
]

JOURNAL_NAME = "journal.jsonl"
_FSYNC_INTERVAL_S = 5.0
# In the order of `Journal`.
_RECORDS = (RunRecord, ResultRow, EndRecord, KernelRecord, PlanRecord, TaskRecord, ReferenceRecord, ChosenRecord)
_BLOCK = 1 << 18
_MOST_LINE = 1 << 26  # bytes; a longer line is damaged


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged line, and the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Journal:
    """Content of a journal, in order."""

    path: Path
    runs: tuple[RunRecord, ...]
    rows: tuple[ResultRow, ...]
    ends: tuple[EndRecord, ...] = ()
    kernels: tuple[KernelRecord, ...] = ()
    plans: tuple[PlanRecord, ...] = ()
    tasks: tuple[TaskRecord, ...] = ()
    references: tuple[ReferenceRecord, ...] = ()
    chosen: tuple[ChosenRecord, ...] = ()

    def final_rows(self) -> tuple[ResultRow, ...]:
        """Return the last row of each pair in order of first appearance, from the problem's last device."""
        device = {row.problem: row.node for row in self.rows}
        last = {(row.problem, row.kernel): row for row in self.rows if row.node == device[row.problem]}
        return tuple(last.values())


class Block(NamedTuple):
    """Records of adjacent lines with their byte offsets, and the number of the first line."""

    line: int
    starts: list[int]
    records: list[Record | Damage]


def iter_blocks(file: BinaryIO, path: Path, *, skip_damaged: bool = False) -> Iterator[Block]:
    """Iterate over the records of a journal, some hundreds at a time; a truncated last line is ignored."""
    number, start = 1, 0
    while True:
        file.seek(start)
        lines = (file.read(_BLOCK) + file.readline(_MOST_LINE)).split(b"\n")
        rest = lines.pop()  # of the last line, which is truncated, or longer than any record
        starts = list(accumulate(map(len, lines), lambda place, size: place + size + 1, initial=start))
        start = starts.pop()
        skipped = _skip_line(file) if rest else 0
        if skipped or (rest and _is_complete(rest)):
            lines.append(rest)
            starts.append(start)
        if not lines:
            return
        start += len(rest) + skipped
        records: list[Record | Damage]
        try:
            records = list(map(decode_row, lines))  # most blocks have nothing else
        except ValueError:
            records = list(map(_record_or_damage, lines))
        if not skip_damaged and Damage in set(map(type, records)):
            place, damage = next((place, record) for place, record in enumerate(records) if isinstance(record, Damage))
            raise DataError(
                f"{path}:{number + place}: damaged line ({damage.reason})",
                "the file was changed or its disk failed; ckh convert takes the other lines",
                code="damaged",
            )
        if number == 1 and not isinstance(records[0], (RunRecord, Damage)):
            raise DataError(f"{path}:1: the journal does not begin with a run", code="damaged")
        yield Block(number, starts, records)
        number += len(records)


def row_at(file: BinaryIO, start: int) -> ResultRow:
    """Read the result at a byte offset given by `iter_blocks`."""
    file.seek(start)
    record = _record_or_damage(file.readline(_MOST_LINE))
    if not isinstance(record, ResultRow):
        raise DataError("the journal changed while it was read", "convert it again", code="in-use")
    return record


def journal_path(path: Path) -> Path:
    """Return the path of a journal, given the file or its folder."""
    return path / JOURNAL_NAME if path.is_dir() else path


def records_of(path: Path) -> Iterator[Record]:
    """Iterate over the records of a journal file; a truncated last line is ignored."""
    try:
        with path.open("rb") as file:
            for block in iter_blocks(file, path):
                yield from cast("list[Record]", block.records)  # a damaged one is refused
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error


def read_journal(path: Path) -> Journal:
    """Read a journal, given the file or its folder; a truncated last line is ignored."""
    path = journal_path(path)
    parts: dict[type[Record], list[Any]] = {kind: [] for kind in _RECORDS}
    for record in records_of(path):
        parts[type(record)].append(record)
    return Journal(path, *map(tuple, parts.values()))


def is_started(path: Path) -> bool:
    """Return True if a journal has content: a kill at startup leaves it empty or with a truncated first line."""
    try:
        with path.open("rb") as file:
            line = file.readline(_MOST_LINE)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error
    is_cut_start = line.startswith(RUN_START) or RUN_START.startswith(line)
    return line.endswith(b"\n") or _is_complete(line) or not is_cut_start


class JournalWriter:
    """Appends to a journal under an exclusive lock, one write per line."""

    def __init__(self, folder: Path, *, replace: bool = False, is_new: bool = False) -> None:
        self.path = folder / JOURNAL_NAME
        self._file_lock = FileLock(self.path)
        self._replaces = replace
        self._synced = time.monotonic()
        refuse_planted(self.path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._failure(error) from error
        self._lock(self._file)
        if not replace:
            self._guarded(self._mend_tail)
        if is_new and os.fstat(self._file).st_size:
            self.close()
            raise UsageError(
                f"{self.path} exists: written by another run", "choose another --out", code="written-meanwhile"
            )

    def start_run(self, run: RunRecord, plan: Iterable[PlanRecord | TaskRecord] = ()) -> None:
        """Write the record of a run and its planned pairs."""
        text = "".join(map(record_line, (run, *plan))).encode()
        is_new = os.fstat(self._file).st_size == 0
        try:
            self._guarded(lambda: self._start_over(text) if self._replaces and not is_new else self._write(text))
        except OutputError:
            if is_new:  # the journal was empty: leave nothing behind
                with suppress(OSError):
                    self.path.unlink()
                    self._file_lock.release()
                    self.path.parent.rmdir()
            raise
        self.sync()

    def add_plan(self, plan: Iterable[PlanRecord | TaskRecord]) -> None:
        """Write the new plan of a run."""
        self._append(plan)
        self.sync()

    def add_kernels(self, kernels: Sequence[KernelRecord]) -> None:
        """Write records of kernels; must precede the rows that refer to them."""
        self._append(kernels)

    def add(self, *rows: ResultRow) -> None:
        """Append rows in a single write."""
        self._append(rows)
        if time.monotonic() - self._synced > _FSYNC_INTERVAL_S:
            self.sync()

    def add_reference(self, reference: ReferenceRecord) -> None:
        """Write a reference measurement."""
        self._append([reference])

    def end_run(self, end: EndRecord) -> None:
        """Write the end of the run and flush it to disk."""
        self._append([end])
        self.sync()

    def sync(self) -> None:
        """Flush to disk."""
        self._guarded(lambda: os.fsync(self._file))
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._file)
        self._file_lock.release()

    def _append(self, records: Iterable[Record]) -> None:
        text = "".join(map(record_line, records)).encode()
        self._guarded(lambda: self._write(text))

    def _write(self, text: bytes) -> None:
        size = os.fstat(self._file).st_size
        try:
            _write_all(self._file, text)
        except OSError:
            os.ftruncate(self._file, size)  # a full disk leaves no partial line
            raise

    def _start_over(self, text: bytes) -> None:
        """Replace the journal atomically."""
        with new_beside(self.path) as (part, file):
            _write_all(file, text)
            os.fsync(file)
            part.replace(self.path)
            os.close(self._file)
            self._file = os.dup(file)  # with its lock

    def _lock(self, file: int) -> None:
        try:
            if self._file_lock.take(file):
                return
        except OSError as error:
            os.close(file)
            raise self._failure(error) from error
        os.close(file)
        hint = "wait for it or choose --out"
        if holder := self._file_lock.holder():
            hint += f"; if {holder} has ended, delete {self._file_lock.holder_path}"
        raise UsageError(f"{self.path} is in use by another run", hint, code="in-use")

    def _mend_tail(self) -> None:
        """Truncate an incomplete last line left by a kill."""
        size = os.fstat(self._file).st_size
        start = _start_of_last_line(self._file, size)
        tail = _read_at(self._file, start, size - start) if size - start < _MOST_LINE else b"\0"
        if _is_complete(tail):
            _write_all(self._file, b"\n")
        elif tail:
            os.ftruncate(self._file, start)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> OutputError:
        hint = "all earlier results are saved; make room, and go on (ckh bench --resume)"
        return OutputError(f"cannot write {self.path}: {error.strerror}", hint, code="unwritable")


def _write_all(file: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(file, left) :]


def _read_at(file: int, start: int, count: int) -> bytes:
    """Read `count` bytes of a file: a single read returns at most 2 GiB."""
    parts = bytearray()
    while len(parts) < count and (part := os.pread(file, min(_BLOCK, count - len(parts)), start + len(parts))):
        parts += part
    return bytes(parts)


def _start_of_last_line(file: int, size: int) -> int:
    """Return the offset of the last line, searching backwards from the end of the file."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        line_feed = _read_at(file, start, end - start).rfind(b"\n")
        if line_feed >= 0:
            return start + line_feed + 1
        end = start
    return 0


def _skip_line(file: BinaryIO) -> int:
    """Skip the rest of an overlong line; return the number of bytes read, 0 at the end of the file."""
    size = 0
    while part := file.readline(_BLOCK):
        size += len(part)
        if part.endswith(b"\n"):
            return size
    return 0


def _is_complete(tail: bytes) -> bool:
    """Return True if an unterminated last line is a complete JSON object."""
    try:
        return isinstance(json.loads(tail), dict)
    except (ValueError, RecursionError):
        return False


def _record_or_damage(line: bytes) -> Record | Damage:
    try:
        return decode_row(line)  # most lines by far
    except ValueError:
        pass
    try:
        return parse_record(line)
    except ValueError as error:
        return Damage(str(error))


def _is_journal(path: Path) -> bool:
    """Return True if a file begins with the record of a run, complete or truncated."""
    if not is_started(path):
        return True
    with path.open("rb") as file:
        return isinstance(_record_or_damage(file.readline(_MOST_LINE)), RunRecord)


JOURNAL = FileKind("run's journal", _is_journal)
