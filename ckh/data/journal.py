"""The journal of a bench run: append-only JSON Lines that survive a kill -9.

The first line of every run says what it was measured with; every further line is one result, failures included. A row
that was measured again replaces the earlier one of the same problem and kernel.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ckh.data.resources import Resources
from ckh.data.schema import SCHEMA_VERSION, Status
from ckh.errors import DataError, UsageError
from ckh.ops import GROUPED_CONV

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

JOURNAL_NAME = "journal.jsonl"
_FSYNC_INTERVAL_S = 5.0
_RUN, _KERNEL, _RESULT, _END = "run", "kernel", "result", "end"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run was measured with: the provenance of the rows that carry its `run_id`.

    `hardware` is the device's profile under the names of `schema.HARDWARE`; `device_kind` is "host" or "hip".
    """

    run_id: str
    ckh_version: str
    started: str
    device_kind: str
    arch: str
    device: str
    clock_mhz: int
    hardware: dict[str, int]
    compiler: str
    flags: tuple[str, ...]
    seed: int
    samples: int
    variant: str
    problems: str
    kernels: str
    dtype: str
    ndim: int | None = None
    rule_set: str = "default"
    registry: str | None = None
    filter: str | None = None
    split_k: tuple[int, ...] = (1,)
    pad_channels: bool = False
    max_scratch: int | None = None
    cold: bool = False
    op: str = GROUPED_CONV
    model: str | None = None
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """What the compiler said about a kernel, which result rows refer to by `source_hash`."""

    run_id: str
    source_hash: str
    code_hash: str
    resources: Resources | None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """What became of a (problem, kernel) pair. `samples_ns` are times of one run, each the mean of `loops` runs.

    Times are None unless the status is ok or unstable. `latency_ms` is the median, `spread` the median absolute
    deviation over it.
    """

    run_id: str
    problem: str
    kernel: str
    status: Status
    message: str = ""
    latency_ms: float | None = None
    latency_min_ms: float | None = None
    spread: float | None = None
    samples_ns: tuple[float, ...] = ()
    loops: int = 0
    remeasured: bool = False
    source_hash: str = ""
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class EndRecord:
    """How a run ended: "complete", "interrupted" or "budget"; seconds by phase of the worker, and in all."""

    run_id: str
    reason: str
    wall_s: float
    phase_s: dict[str, float]


Record = RunRecord | KernelRecord | ResultRow | EndRecord


@dataclass(frozen=True, slots=True)
class Journal:
    """All that a journal holds, in the order it was written."""

    path: Path
    runs: tuple[RunRecord, ...]
    rows: tuple[ResultRow, ...]
    ends: tuple[EndRecord, ...] = ()
    kernels: tuple[KernelRecord, ...] = ()

    def final_rows(self) -> tuple[ResultRow, ...]:
        """The last row of each pair, in the order of the first."""
        last: dict[tuple[str, str], ResultRow] = {}
        for row in self.rows:
            last[row.problem, row.kernel] = row
        return tuple(last.values())


def read_journal(path: Path) -> Journal:
    """Read a journal, given itself or the folder it is in. A last line that was cut off is left out.

    Raises:
        DataError: it cannot be read, or a line is damaged; the message has its number.
    """
    path = path / JOURNAL_NAME if path.is_dir() else path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    lines = content.split(b"\n")
    tail = lines.pop()
    records = [_parse_line(path, number, line) for number, line in enumerate(lines, 1)]
    if _is_complete(tail):
        records.append(_parse_line(path, len(lines) + 1, tail))
    runs = tuple(record for record in records if isinstance(record, RunRecord))
    rows = tuple(record for record in records if isinstance(record, ResultRow))
    if rows and not runs:
        raise DataError(f"{path}:1: the journal does not start with the record of a run")
    ends = tuple(record for record in records if isinstance(record, EndRecord))
    kernels = tuple(record for record in records if isinstance(record, KernelRecord))
    return Journal(path, runs, rows, ends, kernels)


class JournalWriter:
    """Appends to a journal that no other process writes. Each line is one write.

    Raises:
        UsageError: another run writes this journal.
        DataError: it cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL_NAME
        self._synced = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._failure(error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise UsageError(f"another run writes {self.path}", "wait for it or choose --out") from None
        self._guarded(self._mend_tail)

    def start_run(self, run: RunRecord) -> None:
        """Write what the rows that follow are measured with."""
        self._append([{"kind": _RUN, **asdict(run)}])
        self.sync()

    def add_kernels(self, kernels: Sequence[KernelRecord]) -> None:
        """Write what is known of kernels that rows will refer to."""
        self._append([{"kind": _KERNEL, **asdict(kernel)} for kernel in kernels])

    def add(self, *rows: ResultRow) -> None:
        """Write rows, all in one piece."""
        self._append([{"kind": _RESULT, **_row_values(row)} for row in rows])
        if time.monotonic() - self._synced > _FSYNC_INTERVAL_S:
            self.sync()

    def end_run(self, end: EndRecord) -> None:
        """Write how the run ended."""
        self._append([{"kind": _END, **asdict(end)}])
        self.sync()

    def sync(self) -> None:
        """Have the disk hold all that was written."""
        self._guarded(lambda: os.fsync(self._file))
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file, which gives up the lock."""
        os.close(self._file)

    def _append(self, documents: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(document, allow_nan=False) + "\n" for document in documents).encode()
        self._guarded(lambda: self._write(text))

    def _write(self, text: bytes) -> None:
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, text)
            while written < len(text):
                written += os.write(self._file, text[written:])
        except OSError:
            os.ftruncate(self._file, size)  # a full disk leaves no half line
            raise

    def _mend_tail(self) -> None:
        """Cut off a last line that a kill left unfinished."""
        size = os.fstat(self._file).st_size
        content = os.pread(self._file, size, 0)
        tail = content[content.rfind(b"\n") + 1 :]
        if _is_complete(tail):
            os.write(self._file, b"\n")
        elif tail:
            os.ftruncate(self._file, size - len(tail))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> DataError:
        hint = "all earlier results are saved; make room, and go on (ckh bench --resume)"
        return DataError(f"cannot write {self.path}: {error.strerror}", hint)


def _row_values(row: ResultRow) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return {**values, "status": str(row.status), "samples_ns": [round(sample, 1) for sample in row.samples_ns]}


def _is_complete(tail: bytes) -> bool:
    """Whether a last line that lacks its end holds a whole object all the same."""
    try:
        return isinstance(json.loads(tail), dict)
    except ValueError:
        return False


def _parse_line(path: Path, number: int, line: bytes) -> Record:
    try:
        values = json.loads(line)
        kind = values.pop("kind")
        return _KINDS[kind](values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path}:{number}: damaged line ({reason})", "the file was changed or its disk failed"
        ) from error


def _run_record(values: dict[str, Any]) -> RunRecord:
    if values["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema version {values['schema_version']}, this is {SCHEMA_VERSION}")
    # Journals of earlier versions have no split_k.
    return RunRecord(**{**values, "flags": tuple(values["flags"]), "split_k": tuple(values.get("split_k", (1,)))})


def _kernel_record(values: dict[str, Any]) -> KernelRecord:
    resources = values["resources"]
    return KernelRecord(**{**values, "resources": None if resources is None else Resources(**resources)})


def _result_row(values: dict[str, Any]) -> ResultRow:
    return ResultRow(**{**values, "status": Status(values["status"]), "samples_ns": tuple(values["samples_ns"])})


_KINDS: dict[str, Callable[[dict[str, Any]], Record]] = {
    _RUN: _run_record,
    _KERNEL: _kernel_record,
    _RESULT: _result_row,
    _END: lambda values: EndRecord(**values),
}
