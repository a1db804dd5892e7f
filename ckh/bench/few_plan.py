"""`ckh bench --plan`: of a whole plan the few problems and kernels whose measurement says most (`learn.few_shots`).

What stands first in a problem's order is said by the model that `ckh predict` would use, the nearest one or an
estimate; where there is none of these, kernels are taken at random. What the plan holds is measured in its order, the
problem that stands for most first, so that a run that is stopped has measured what helps most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ckh.archs import load_arch
from ckh.errors import ModelError, UsageError
from ckh.learn.artifact import find_model, fitting_models, load_model, wanted_for
from ckh.learn.few_shots import Shots, few_kernels, representative
from ckh.learn.pooled import PooledScores
from ckh.learn.transfer import ESTIMATE, EstimateModel, has_estimate, stand_in
from ckh.ops import operation_of_problem
from ckh.untrusted import integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.bench.pace import Pace
    from ckh.bench.plan import Plan, Task
    from ckh.learn.artifact import Model, Wanted
    from ckh.ops.base import Kernel, Problem

AUTO = "auto"  # as many problems as fit in the budget
# Shares of a budget that compiling may take: by times that were seen here, and by a constant, which may be far off.
_COMPILING, _COMPILING_UNSEEN = 0.5, 0.25
_FEWEST_KERNELS = 4


class Order(Protocol):
    """The facts known of kernels before they are measured."""

    def __call__(
        self, problem: Problem, kernels: Sequence[Kernel], numbers: NDArray[np.int64], /
    ) -> NDArray[np.float64] | None:
        """A score for each of a problem's kernels, higher for faster ones; None: nothing is known.

        Args:
            problem: what is to be computed.
            kernels: all of a plan, the same object for each of its problems.
            numbers: of those of them that are the problem's.
        """


def few_plan(plan: Plan, count: str, order: Order, seed: int, budget_s: float | None, pace: Pace) -> Plan:
    """The part of a plan that says most.

    Args:
        plan: problems with all kernels that may be measured.
        count: how many problems, or "auto": as many as fit in the budget.
        order: what is known of kernels before.
        seed: what is drawn at random follows from it.
        budget_s: seconds for compiling and measuring.
        pace: how long these take.

    Raises:
        UsageError: the count is none, or depends on a budget that there is not.
    """
    most = _count(count, budget_s)
    by_worth = (plan.tasks[number] for number in representative(_places(plan), seed))
    if count == AUTO and budget_s is not None:
        tasks, shots = _within(by_worth, len(plan.kernels), budget_s, pace)
    else:
        tasks, shots = list(islice(by_worth, most)), Shots()
    kernels, numbers_of = _numbered(tasks)
    orders, is_known = [], False
    for task, numbers in zip(tasks, numbers_of, strict=True):
        ascending = np.sort(numbers)
        scores = order(task.problem, kernels, ascending)
        orders.append(numbers if scores is None else ascending[np.argsort(-scores, kind="stable")])
        is_known |= scores is not None
    if not is_known:
        # A few kernels at random would leave most tiles out.
        shots = replace(shots, kernels=None)
    chosen = few_kernels(orders, shots, seed)
    few_tasks = (
        replace(task, kernels=tuple(kernels[number] for number in few.tolist()))
        for task, few in zip(tasks, chosen, strict=True)
    )
    return replace(plan, tasks=tuple(task for task in few_tasks if task.kernels))


def _numbered(tasks: Sequence[Task]) -> tuple[tuple[Kernel, ...], list[NDArray[np.int64]]]:
    """All kernels of tasks in their own order, and of each task the numbers of its kernels in the task's order."""
    # Tasks share the objects, and a kernel takes long to hash.
    objects = {id(kernel): kernel for task in tasks for kernel in task.kernels}
    kernels = tuple(sorted(set(objects.values())))
    number_of = {kernel: number for number, kernel in enumerate(kernels)}
    number_of_object = {key: number_of[kernel] for key, kernel in objects.items()}
    return kernels, [np.array([number_of_object[id(kernel)] for kernel in task.kernels]) for task in tasks]


def _count(count: str, budget_s: float | None) -> int:
    if count == AUTO:
        if budget_s is None:
            raise UsageError(f"--plan {AUTO} takes what fits in a budget, and there is none", "add --budget 15m")
        return np.iinfo(np.int32).max
    try:
        number = integer(count)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(
            f"--plan {count!r} is no number of problems", f"write --plan 20, or --plan {AUTO} --budget 15m"
        )
    return number


def _places(plan: Plan) -> NDArray[np.float64]:
    problems = [task.problem for task in plan.tasks]
    place_of = operation_of_problem(problems[0]).place
    return np.array([place_of(problem) for problem in problems])


def _within(by_worth: Iterable[Task], kernels: int, budget_s: float, pace: Pace) -> tuple[list[Task], Shots]:
    """The first tasks, and how many kernels, that fit in a budget: a task and some kernels in any case.

    Compiling takes a share of it at most. Where all tasks fit, each has as many more kernels as there is time for.
    """
    share = _COMPILING_UNSEEN if pace.seen_compile_s is None else _COMPILING
    compiled = int(share * budget_s / pace.compile_s) if pace.compile_s else kernels
    shots = Shots(kernels=min(max(compiled, _FEWEST_KERNELS), kernels))
    assert shots.kernels is not None
    left_s = budget_s - shots.kernels * pace.compile_s
    spent_s = 0.0
    tasks: list[Task] = []
    for task in by_worth:
        count = min(sum(shots.of_problem(len(task.kernels))), shots.kernels)
        spent_s += count * pace.pair_s(task.problem.flops)
        if tasks and spent_s > left_s:
            return tasks, shots
        tasks.append(task)
    more = max(1.0, left_s / spent_s)
    return tasks, replace(shots, best=int(shots.best * more), others=int(shots.others * more))


@dataclass(slots=True)
class KnownBefore:
    """Orders kernels by a model, or what stands in for one; `sources` names what was used.

    A model that does not know all of a problem's kernels says nothing of the others: there the estimate goes before it.
    """

    arch: str
    folder: Path | None
    sources: dict[str, None]
    _scores: dict[Wanted, PooledScores | None]

    @classmethod
    def of(cls, arch: str, folder: Path | None) -> KnownBefore:
        """The facts known of an architecture; by the model in a folder, if one is named."""
        return cls(arch, folder, {}, {})

    def __call__(
        self, problem: Problem, kernels: Sequence[Kernel], numbers: NDArray[np.int64], /
    ) -> NDArray[np.float64] | None:
        """See `Order`."""
        wanted = wanted_for(problem, self.arch)
        if wanted not in self._scores:
            model = self._model(wanted, problem, [kernels[number] for number in numbers.tolist()])
            self._scores[wanted] = None if model is None else PooledScores(model, kernels)
            if model is not None:
                self.sources[str(model.path) if str(model.path) == ESTIMATE else model.path.name] = None
        scores = self._scores[wanted]
        return None if scores is None else scores(problem, numbers)

    def _model(self, wanted: Wanted, problem: Problem, kernels: Sequence[Kernel]) -> Model | None:
        if self.folder is not None:
            model = load_model(self.folder)
            model.require(wanted)
            return model
        try:
            model = find_model(wanted) if fitting_models(wanted) else stand_in(wanted, problem)
        except ModelError:
            return None
        found = operation_of_problem(problem).candidates(problem, load_arch(self.arch), model.candidates_of)
        known = {found.pool[number] for number in found.chosen}
        if has_estimate(wanted) and not known.issuperset(kernels):
            return EstimateModel(wanted)
        return model if known else None
