"""Reader of the journals of `ckh bench`. Failures are rows too; a later row of a pair replaces an earlier one."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ckh.data.journal import RunRecord, read_journal
from ckh.data.readers.base import BadRow, refuse_bad
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import store
from ckh.errors import CkhError, DataError, UsageError
from ckh.formats import Reading, ReadOptions
from ckh.ops import operation
from ckh.resources import RESOURCE_NAMES
from ckh.schema import HARDWARE, MEASURED, SHORTEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.journal import ResultRow
    from ckh.ops.base import Operation
    from ckh.resources import Resources

NAME = "journal"
BAD_PROBLEM = "with a problem that does not parse"
BAD_KERNEL = "with a kernel name that does not parse"
BAD_TIME = "with a time that is missing, zero, negative or not a number"
UNKNOWN_RUN = "of an unknown run"
MISMATCH = "with a kernel that is not for the problem"
DAMAGED = "that holds no record: a damaged line"

_BLOCK = 1 << 20


class _Parsed:
    """Distinct texts, each parsed once; what is wrong with a text stands in its place."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse
        self._of_text: dict[str, Any] = {}

    def __getitem__(self, text: str) -> Any:
        if text not in self._of_text:
            try:
                self._of_text[text] = self._parse(text)
            except CkhError as error:
                self._of_text[text] = error
        return self._of_text[text]


def sniff(head: bytes) -> bool:
    """Whether the first line is a record of a journal."""
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"kind"' in line and b'"run_id"' in line


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a journal; it says itself what it was measured on.

    Raises:
        DataError: it is damaged, has no rows, or rows are bad and not to be skipped.
    """
    journal = read_journal(path, skip_damaged=options.skip_bad)
    runs = {run.run_id: run for run in journal.runs}
    for run in journal.runs:
        _check_run(path, run)
    op = _operation(journal.runs, path)
    problems, kernels = _Parsed(op.parse_problem), _Parsed(op.parse_kernel)
    rows = journal.final_rows()
    faults = {id(row): fault for row in rows if (fault := _fault(row, problems, kernels, runs, op)) is not None}
    counts = dict(Counter(reason for reason, _ in faults.values()))
    if faults and not options.skip_bad:
        found = ((row, line) for row, line in zip(journal.rows, journal.lines, strict=True) if id(row) in faults)
        refuse_bad(path, counts, [BadRow(faults[id(row)][0], line, faults[id(row)][1]) for row, line in found])
    if journal.damage:
        counts[DAMAGED] = len(journal.damage)
    good = [row for row in rows if id(row) not in faults]
    if not good:
        raise DataError(f"{path}: not one good row" if faults else f"{path} has no results yet")
    resources = {kernel.source_hash: kernel.resources for kernel in journal.kernels}
    parts = [
        _table([row for row in good if row.run_id == run_id], run, problems, kernels, resources)
        for run_id, run in runs.items()
        if any(row.run_id == run_id for row in good)
    ]
    return Reading(
        store(parts, options.output),
        (_source_of(path),),
        runs=tuple({**asdict(run), "flags": list(run.flags)} for run in runs.values()),
        bad=counts,
        superseded=len(journal.rows) - len(rows),
    )


def _operation(runs: Sequence[RunRecord], path: Path) -> Operation:
    names = dict.fromkeys(run.op for run in runs)
    if len(names) != 1:
        raise DataError(f"{path} has runs of {len(names)} operations" if names else f"{path} has no results yet")
    try:
        return operation(next(iter(names)))
    except UsageError as error:
        raise DataError(f"{path}: {error.message}", error.hint) from error


def _check_run(path: Path, run: RunRecord) -> None:
    missing = [name for name in HARDWARE if name not in run.hardware]
    if missing:
        raise DataError(f"{path}: run {run.run_id} does not say the hardware's {missing[0]}")


def _fault(
    row: ResultRow, problems: _Parsed, kernels: _Parsed, runs: dict[str, RunRecord], op: Operation
) -> tuple[str, str] | None:
    """Why a row cannot be used, and the detail."""
    problem, kernel = problems[row.problem], kernels[row.kernel]
    if isinstance(problem, CkhError):
        return BAD_PROBLEM, problem.message
    if isinstance(kernel, CkhError):
        return BAD_KERNEL, kernel.message
    if row.run_id not in runs:
        return UNKNOWN_RUN, f"run {row.run_id!r}"
    if mismatch := op.mismatch(kernel, problem):
        return MISMATCH, mismatch
    times = [time for time in (row.latency_ms, row.latency_min_ms) if time is not None]
    is_measured = row.status in MEASURED
    if (is_measured and row.latency_ms is None) or not all(
        math.isfinite(time) and time >= SHORTEST_MS for time in times
    ):
        return BAD_TIME, f"latency_ms is {row.latency_ms}, latency_min_ms is {row.latency_min_ms}, {row.status}"
    return None


def _table(
    rows: list[ResultRow],
    run: RunRecord,
    problems: _Parsed,
    kernels: _Parsed,
    resources: dict[str, Resources | None],
) -> pa.Table:
    import numpy as np

    problem_of: dict[str, int] = {}
    kernel_of: dict[str, int] = {}
    problem_of_row = np.array([problem_of.setdefault(row.problem, len(problem_of)) for row in rows])
    kernel_of_row = np.array([kernel_of.setdefault(row.kernel, len(kernel_of)) for row in rows])
    extra = {
        "message": [row.message or None for row in rows],
        "latency_min_ms": np.array([row.latency_min_ms for row in rows], dtype=np.float64),
        "spread": np.array([row.spread for row in rows], dtype=np.float64),
        "samples": [len(row.samples_ns) for row in rows],
        "remeasured": [row.remeasured for row in rows],
    }
    if any(resources.values()):
        taken = [resources.get(row.source_hash) for row in rows]
        extra |= {name: [None if one is None else getattr(one, name) for one in taken] for name in RESOURCE_NAMES}
    return build_table(
        Pairs(
            [problems[text] for text in problem_of],
            problem_of_row,
            [kernels[text] for text in kernel_of],
            list(kernel_of),
            kernel_of_row,
            run.op,
        ),
        Results([str(row.status) for row in rows], np.array([row.latency_ms for row in rows], dtype=np.float64), extra),
        Origin(run.arch, run.device, {name: run.hardware[name] for name in HARDWARE}, run.run_id),
    )


def _source_of(path: Path) -> dict[str, Any]:
    """As `source_of`, of a file that need not fit in memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return {"name": path.name, "format": NAME, "sha256": digest.hexdigest()}
