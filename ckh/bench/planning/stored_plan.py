"""A plan as a journal holds it: a resumed run measures the pairs it began with, whatever became of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.planning.plan import Plan, Task, full_name
from ckh.data.journal import PlanRecord, TaskRecord
from ckh.errors import CkhError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.bench.planning.history import History
    from ckh.data.journal import RunRecord
    from ckh.ops.base import AnyOperation


def plan_records(run_id: str, plan: Plan) -> Iterator[PlanRecord | TaskRecord]:
    """The records of a run's plan: its kernels by name, then each problem with the numbers of its kernels."""
    kernels = plan.kernels
    number = {kernel: i for i, kernel in enumerate(kernels)}
    yield PlanRecord(run_id, tuple(map(full_name, kernels)))
    for task in plan.tasks:
        yield TaskRecord(run_id, task.problem.canonical(), tuple(number[kernel] for kernel in task.kernels))


def stored_plan(history: History, op: AnyOperation) -> Plan | None:
    """The plan of the last run that wrote one whole; None if there is none, as in journals of earlier versions.

    Raises:
        DataError: it is damaged, or holds a problem or kernel that this ckh does not know.
    """
    planned = [run for run in history.runs if run.pairs is not None]
    return next((plan for run in reversed(planned) if (plan := _plan_of(history, run, op)) is not None), None)


def _plan_of(history: History, run: RunRecord, op: AnyOperation) -> Plan | None:
    names = [name for plan in history.plans if plan.run_id == run.run_id for name in plan.kernels]
    tasks = [task for task in history.tasks if task.run_id == run.run_id]
    if sum(len(task.kernels) for task in tasks) != run.pairs:
        return None  # a kill while it was written: nothing was measured by it
    if not all(0 <= number < len(names) for task in tasks for number in task.kernels):
        raise DataError(f"{history.path}: the plan of run {run.run_id} is damaged", code="damaged")
    try:
        kernels = [op.parse_kernel(name) for name in names]
        return Plan(
            tuple(Task(op.parse_problem(task.problem), tuple(kernels[i] for i in task.kernels)) for task in tasks), {}
        )
    except CkhError as error:
        raise DataError(
            f"{history.path}: the plan of run {run.run_id}: {error.message}", error.hint, code=error.code
        ) from error
