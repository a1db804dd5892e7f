"""Streaming reader of a journal for `--resume`: measured pairs, and their measuring times.

A journal may be larger than memory. Of its rows only the data needed by a resumed run is kept (`PairResults`), some
bytes each; runs, plans and reference measurements are kept in full.

Also stores plans in a journal: a resumed run measures the pairs it began with, even if input files have changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.bench.planning.plan import Plan, Task, full_name
from ckh.bench.planning.results import PairResults
from ckh.data.journal import (
    EndRecord,
    PlanRecord,
    ReferenceRecord,
    ResultRow,
    RunRecord,
    TaskRecord,
    journal_path,
    records_of,
)
from ckh.errors import CkhError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ckh.data.journal_records import Record
    from ckh.ops.base import AnyOperation


@dataclass(frozen=True, slots=True)
class History:
    """The runs of a journal, in the order of writing."""

    path: Path
    runs: tuple[RunRecord, ...]
    ends: tuple[EndRecord, ...]
    plans: tuple[PlanRecord, ...]
    tasks: tuple[TaskRecord, ...]
    references: tuple[ReferenceRecord, ...]
    results: PairResults
    measured: Mapping[tuple[str, str], int]
    """Number of rows by run and problem, excluding remeasurements."""


def read_history(folder: Path) -> History:
    """Read a journal, given its file or folder.

    Raises:
        DataError: as `read_journal`.
    """
    path = journal_path(folder)
    others: dict[type[Record], list[Record]] = {
        kind: [] for kind in (RunRecord, EndRecord, PlanRecord, TaskRecord, ReferenceRecord)
    }
    measured: Counter[tuple[str, str]] = Counter()
    numbers: dict[int, int] = {}  # kernels in tasks; each is stored once

    def rows() -> Iterator[ResultRow]:
        for record in records_of(path):
            if isinstance(record, ResultRow):
                measured[record.run_id, record.problem] += not record.remeasured
                yield record
            elif isinstance(record, TaskRecord):
                kernels = tuple(numbers.setdefault(number, number) for number in record.kernels)
                others[TaskRecord].append(replace(record, kernels=kernels))
            elif type(record) in others:
                others[type(record)].append(record)

    results = PairResults.of_journal(rows())
    return History(
        path,
        tuple(others[RunRecord]),  # type: ignore[arg-type]
        tuple(others[EndRecord]),  # type: ignore[arg-type]
        tuple(others[PlanRecord]),  # type: ignore[arg-type]
        tuple(others[TaskRecord]),  # type: ignore[arg-type]
        tuple(others[ReferenceRecord]),  # type: ignore[arg-type]
        results,
        measured,
    )


def plan_records(run_id: str, plan: Plan) -> Iterator[PlanRecord | TaskRecord]:
    """Records of a run's plan: its kernels by name, then each problem with the indices of its kernels."""
    kernels = plan.kernels
    number = {kernel: i for i, kernel in enumerate(kernels)}
    yield PlanRecord(run_id, tuple(map(full_name, kernels)))
    for task in plan.tasks:
        yield TaskRecord(run_id, task.problem.canonical(), tuple(number[kernel] for kernel in task.kernels))


def stored_plan(history: History, op: AnyOperation) -> Plan | None:
    """The plan of the last run with a complete one; None if there is none, as in journals of earlier versions.

    Raises:
        DataError: it is damaged, or contains a problem or kernel unknown to this version.
    """
    planned = [run for run in history.runs if run.pairs is not None]
    return next((plan for run in reversed(planned) if (plan := _plan_of(history, run, op)) is not None), None)


def _plan_of(history: History, run: RunRecord, op: AnyOperation) -> Plan | None:
    names = [name for plan in history.plans if plan.run_id == run.run_id for name in plan.kernels]
    tasks = [task for task in history.tasks if task.run_id == run.run_id]
    if sum(len(task.kernels) for task in tasks) != run.pairs:
        return None  # killed while writing the plan: nothing was measured
    if not all(0 <= number < len(names) for task in tasks for number in task.kernels):
        raise DataError(f"{history.path}: the plan of run {run.run_id} is damaged", code="damaged")
    try:
        kernels = [op.kernels.parse(name) for name in names]
        return Plan(
            tuple(Task(op.problems.parse(task.problem), tuple(kernels[i] for i in task.kernels)) for task in tasks), {}
        )
    except CkhError as error:
        raise DataError(
            f"{history.path}: the plan of run {run.run_id}: {error.message}", error.hint, code=error.code
        ) from error
