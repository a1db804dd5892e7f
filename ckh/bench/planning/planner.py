"""The planner: which problems and kernels are measured, for all commands that spend measurements.

`KnownBefore` scores kernels by what is known before measuring: the nearest model or an estimate; without any, choices
are random, by a seed. `ckh bench --plan`, which `ckh tune` runs, selects problems and kernels with these scores
(`few_plan`), `ckh search measure` begins with the kernels of the highest ones, and `ckh predict --probe` times the
first choices of an answer (`first_choices`).

Problems are ordered by their marginal gain as representatives (facility location: the largest decrease of the sum of
distances of all problems to the nearest selected one), so that any prefix is a selection: an interrupted run has
measured the most informative ones. For a problem the kernels ranked first by prior knowledge are measured, and as many
others, each about equally often. Few kernels of many problems are more informative than many kernels of few problems:
the prior may be wrong, and a model must see each kernel at several sizes. Savings: `benchmarks/few_shots.py`.

How long they take is estimated by the node's `Pace` (`pace`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.bench.planning.plan import PoolKernels
from ckh.errors import ModelError, UsageError
from ckh.files.untrusted import integer
from ckh.kernels.table import KernelTable
from ckh.learn.analytic.estimate import ESTIMATE
from ckh.learn.analytic.estimator import has_estimate
from ckh.learn.analytic.transfer import RANDOM, estimate_model, stand_in
from ckh.learn.answers.answer import SET_SHOWN
from ckh.learn.answers.batches import PooledScores
from ckh.learn.models.artifact import find_model, fitting_models, load_model, wanted_for
from ckh.ops import operation_of_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.bench.planning.pace import Pace
    from ckh.bench.planning.plan import Plan, Task
    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Kernel, Problem

    # Scores some of a plan's kernels, by index, for a problem, as `KnownBefore` does.
    Order = Callable[[Problem, Sequence[Kernel], NDArray[np.int64]], NDArray[np.float64] | None]

# From a replay of the host's training layers, at 150 and 330 pairs: 240 kernels are better than 120 and 60, and as
# good as all; six first and six other kernels of a problem are better than four and four at 330, and as good at 150.
KERNELS = 240
MOST_PROBLEMS = 2000  # maximum to choose from, by a random sample: distances of all pairs are computed
_HALF_WORTH = 5.0  # rank at which a kernel has half the weight of the first
_FEWEST = 4  # useful kernels of a problem; with fewer, its own first kernels are measured
_PROBLEMS_AT_ONCE, _KERNELS_AT_ONCE = 32, 1024  # re-evaluated together by the lazy greedy selection
_OF_ALL = 1e-3  # weight of kernels on problems already covered by a better kernel


@dataclass(frozen=True, slots=True)
class Shots:
    """Amount of measuring."""

    kernels: int | None = KERNELS
    """Number of distinct kernels; None: no limit."""
    best: int = 6
    """Kernels per problem, ranked first by prior knowledge."""
    others: int = 6
    """Kernels per problem, the least measured so far: a model must also see slow kernels."""
    stated: int = 0
    """First kernels per problem that come before any others, as one of them is nearly the best."""

    def of_problem(self, kernels: int) -> tuple[int, int]:
        """Number of first and of other kernels for a problem with `kernels` kernels."""
        both = self.best + self.others
        count = min(both, kernels)
        others = min(count * self.others // both, max(count - self.stated, 0))
        return count - others, others


def representative(
    places: NDArray[np.float64], seed: int = 0, weights: NDArray[np.float64] | None = None
) -> Iterator[int]:
    """Yield indices of problems by marginal gain as representatives: any prefix is a selection.

    `places` are the problems as points, shape (problems, coordinates); `weights` those of their distances. Of too many
    problems some are drawn by the seed.
    """
    drawn = np.arange(len(places))
    if len(drawn) > MOST_PROBLEMS:
        drawn = np.sort(np.random.default_rng(seed).choice(drawn, MOST_PROBLEMS, replace=False))
    points = np.asarray(places, dtype=np.float64)[drawn]
    squares = (points**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * points @ points.T, 0.0)).astype(np.float32)
    nearest = np.full(len(drawn), 2 * distance.max() + 1, dtype=np.float32)
    weight = None if weights is None else np.asarray(weights, np.float32)[drawn]

    def gain(numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        gained = np.maximum(nearest - distance[numbers], 0.0)
        return np.asarray(gained.sum(axis=1) if weight is None else gained @ weight)

    greedy = _LazyGreedy(gain(np.arange(len(drawn))), _PROBLEMS_AT_ONCE)
    for _ in drawn:
        chosen = greedy.take(gain)
        nearest = np.minimum(nearest, distance[chosen])
        yield int(drawn[chosen])


def useful_kernels(orders: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Select up to `count` kernels that cover the first ones of every problem's order, the most useful first."""
    worth = np.zeros((len(orders), 1 + max((int(order.max()) for order in orders if len(order)), default=-1)))
    for row, order in zip(worth, orders, strict=True):
        row[order] = _HALF_WORTH / (_HALF_WORTH + np.arange(len(order)))
    reached, of_all = np.zeros((len(orders), 1)), _OF_ALL * worth.mean(axis=0)

    def gain(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.maximum(np.take(worth, numbers, axis=1) - reached, 0.0).sum(axis=0) + of_all[numbers])

    greedy = _LazyGreedy(np.where(of_all > 0, gain(np.arange(len(of_all))), -1.0), _KERNELS_AT_ONCE)
    chosen: list[int] = []
    while len(chosen) < min(count, int((of_all > 0).sum())):
        chosen.append(greedy.take(gain))
        reached = np.maximum(reached, worth[:, chosen[-1:]])
    return np.array(chosen, dtype=np.int64)


class _LazyGreedy:
    """Lazy greedy selection of the item with the largest marginal gain (Minoux, 1978).

    Since gains never increase, an earlier gain is an upper bound: few items are re-evaluated per selection. The result
    equals that of evaluating all. Items with a negative initial gain are excluded; `at_once` items are re-evaluated
    together.
    """

    def __init__(self, gain: NDArray[np.floating[Any]], at_once: int) -> None:
        self._bound = gain.copy()
        self._at_once = min(at_once, len(gain))

    def take(self, gain: Callable[[NDArray[np.int64]], NDArray[np.floating[Any]]]) -> int:
        """Select the next item, given the current gains of items by index."""
        is_current = self._bound < 0
        while not is_current[first := int(self._bound.argmax())]:
            order = np.argpartition(np.where(is_current, 1.0, -self._bound), self._at_once - 1)[: self._at_once]
            stale = order[~is_current[order]]
            self._bound[stale] = gain(stale)
            is_current[stale] = True
        self._bound[first] = -1.0
        return first


def few_kernels(orders: Sequence[NDArray[np.int64]], shots: Shots, seed: int = 0) -> list[NDArray[np.int64]]:
    """Select the kernels to measure for each problem: its first useful ones, and the least selected others.

    `orders` are the kernel indices of each problem, best first; in random order without prior knowledge.
    """
    random, often = np.random.default_rng(seed), Counter[int]()
    useful = None if shots.kernels is None else useful_kernels(orders, shots.kernels)
    chosen: list[NDArray[np.int64]] = []
    for whole in orders:
        best, others = shots.of_problem(len(whole))
        known = whole if useful is None else whole[np.isin(whole, useful)]
        order = known if len(known) >= _FEWEST else whole[:_FEWEST]
        drawn = random.permutation(order[best:])
        counts = np.array([often[kernel] for kernel in drawn.tolist()])
        chosen.append(np.concatenate([order[:best], drawn[np.argsort(counts, kind="stable")[:others]]]))
        often.update(chosen[-1].tolist())
    return chosen


def first_choices(ranking: Ranking, count: int) -> list[Ranked[Any]]:
    """The first choices of an answer that the headers can build; all first choices if they can build none."""
    best = ranking.best(count)
    return [ranked for ranked in best if not ranked.not_in_headers] or best


@dataclass(slots=True)
class KnownBefore:
    """Scores kernels by the model of a folder, if given, else by the one that fits, or its substitute.

    `sources` names the models used. Kernels unknown to the model are scored by the estimate.
    """

    arch: str
    folder: Path | None
    num_cus: int = 0
    sources: dict[str, None] = field(default_factory=dict)
    stated: int = 0
    """The largest number of first kernels of which one is nearly the best, as answers of these models state."""
    _scores: dict[Wanted, PooledScores | None] = field(default_factory=dict)

    def __call__(
        self, problem: Problem, kernels: Sequence[Kernel], numbers: NDArray[np.int64], /
    ) -> NDArray[np.float64] | None:
        """Score some of a plan's kernels for a problem, higher is faster; None: nothing is known.

        `kernels` are those of the whole plan, the same object for each of its problems; `numbers` the problem's own.
        """
        wanted = wanted_for(problem, self.arch, self.num_cus)
        if wanted not in self._scores:
            model = self.model(problem, [kernels[number] for number in numbers.tolist()])
            self._scores[wanted] = None if model is None else PooledScores(model, kernels)
            if model is not None:
                if model.not_measured is None and model.calibration is not None:
                    self.stated = max(self.stated, dict(model.calibration.sets).get(SET_SHOWN, 0))
                self.sources[str(model.path) if str(model.path) == ESTIMATE else model.path.name] = None
        scores = self._scores[wanted]
        return None if scores is None else scores(problem, numbers)

    def model(self, problem: Problem, kernels: Sequence[Kernel]) -> Model | None:
        """The model that scores some kernels for a problem; None: there is none."""
        wanted = wanted_for(problem, self.arch, self.num_cus)
        if self.folder is not None:
            model = load_model(self.folder)
            model.require(wanted)
            return model
        try:
            model = find_model(wanted) if fitting_models(wanted) else stand_in(wanted, problem)
        except ModelError:
            return None
        if model.not_measured is not None and model.not_measured.basis == RANDOM:
            return None
        candidates = operation_of_problem(problem).kernels.candidates(
            problem, load_arch(self.arch), model.candidates_of
        )
        pool = (
            candidates.pool
            if isinstance(candidates.pool, KernelTable)
            else KernelTable.of(type(kernels[0]), candidates.pool)
        )
        if has_estimate(wanted) and not np.isin(pool.numbers_of(kernels), candidates.chosen).all():
            return estimate_model(wanted)
        return model if len(candidates.chosen) else None


AUTO = "auto"  # as many problems as fit in the budget
_PLANNED = 0.85  # share of a budget that a plan fills, as its times are estimates
_COMPILING = 0.5  # share of it for compiling
_FEWEST_KERNELS = 4
_USED, _AIM = 0.9, 0.96  # shares of a budget: acceptable use, and the target
LEAST_USE = 0.5  # share of a budget that a plan must use, if there are pairs to measure
_TRIALS = 6
_SHORTEST_S = 1e-3  # of measuring, as nothing is left of measured pairs
_FEW_MORE = 1.25  # ratio to the requested number of kernels: problems of many kinds need kernels of each kind
_MOST_STEP = 3.0  # maximum factor between measuring times of successive trials


def few_plan(
    plan: Plan,
    count: str,
    order: Order,
    seed: int,
    budget_s: float | None,
    pace: Pace,
    times: Mapping[Problem, float] | None = None,
    stated: Callable[[], int] = int,
) -> Plan:
    """Select the most informative part of a plan: a number of problems, or "auto": as many as fit in the budget.

    `order` scores kernels by what is known before; `times`, the relative time of all executions of each problem, weighs
    the problems, none of which is left out for the budget. `stated` is the number of first kernels of a problem that
    come before others, once its model is known.
    """
    most = _count(count, budget_s)
    weights = None if times is None else np.array([times[task.problem] for task in plan.tasks])
    weights = None if weights is None else weights / weights.sum()
    by_worth = [plan.tasks[number] for number in islice(representative(_places(plan), seed, weights), most)]
    draft = _Draft(by_worth, order, seed, stated)
    if count == AUTO and budget_s is not None:
        tasks = _within(draft, len(plan.kernels), _PLANNED * budget_s, pace, keeps_all=times is not None)
        return replace(plan, tasks=tasks)
    return replace(plan, tasks=draft.tasks(len(by_worth), Shots()))


def total_times(plan: Plan, counts: Mapping[Problem, int], arch: ArchSpec) -> dict[Problem, float]:
    """Relative time of all executions of each problem: at peak rates, or for unknown rates by operations."""
    times, as_run = {}, counts_as_run(plan, counts)
    for problem in (task.problem for task in plan.tasks):
        shortest_s = arch.shortest_s(problem.dtype, problem.bytes, problem.flops)
        count = as_run.get(problem.canonical(), 1)
        times[problem] = count * (float(problem.flops) if shortest_s is None else max(shortest_s))
    return times


def counts_as_run(plan: Plan, counts: Mapping[Problem, int]) -> dict[str, int]:
    """Executions of problems as they are measured, which may be padded, by canonical text."""
    as_run = Counter[str]()
    for problem, count in counts.items():
        as_run[plan.padded.get(problem, problem).canonical()] += count
    return as_run


class _Draft:
    """Plans of the first of some tasks, which are in the order of marginal gain, with cached scores."""

    def __init__(self, by_worth: Sequence[Task], order: Order, seed: int, stated: Callable[[], int]) -> None:
        self.by_worth = by_worth
        self._order, self._seed, self._stated = order, seed, stated
        self._kernels, self._numbers = _numbered(by_worth)
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._is_known = False

    def tasks(self, count: int, shots: Shots, *, limits_unknown: bool = False) -> tuple[Task, ...]:
        """The first tasks with their kernels.

        Without prior scores all kernels are used, as a few random ones would omit most tiles, unless `limits_unknown`.
        """
        orders = [self._order_of(number) for number in range(count)]
        if not self._is_known and not limits_unknown:
            shots = replace(shots, kernels=None)
        chosen = few_kernels(orders, replace(shots, stated=self._stated()), self._seed)
        few = (
            replace(task, kernels=tuple(self._kernels[number] for number in numbers.tolist()))
            for task, numbers in zip(self.by_worth, chosen, strict=False)
        )
        return tuple(task for task in few if task.kernels)

    def _order_of(self, number: int) -> NDArray[np.int64]:
        """Kernels of a task, best first, or in the given order without scores."""
        if number not in self._orders:
            ascending = np.sort(self._numbers[number])
            scores = self._order(self.by_worth[number].problem, self._kernels, ascending)
            self._is_known |= scores is not None
            best_first = self._numbers[number] if scores is None else ascending[np.argsort(-scores, kind="stable")]
            self._orders[number] = best_first
        return self._orders[number]


def _numbered(tasks: Sequence[Task]) -> tuple[tuple[Kernel, ...], list[NDArray[np.int64]]]:
    """Distinct kernels of all tasks, and the indices of each task's kernels."""
    parts = [PoolKernels.of(task.kernels) for task in tasks]
    pools = {id(part.pool): part.pool for part in parts}
    used = {key: np.zeros(len(pool), np.bool_) for key, pool in pools.items()}
    for part in parts:
        used[id(part.pool)][part.numbers] = True
    used_kernels = {key: [pools[key][number] for number in np.flatnonzero(used[key]).tolist()] for key in pools}
    names = [column.name for column in fields(type(tasks[0].kernels[0]))]  # all fields, so that no two kernels tie
    kernels = tuple(sorted(set(chain(*used_kernels.values())), key=attrgetter(*names)))
    number_of = {kernel: number for number, kernel in enumerate(kernels)}
    of_pool = {key: np.zeros(len(pool), np.int64) for key, pool in pools.items()}
    for key, own in used_kernels.items():
        of_pool[key][used[key]] = [number_of[kernel] for kernel in own]
    return kernels, [of_pool[id(part.pool)][part.numbers] for part in parts]


def _count(count: str, budget_s: float | None) -> int:
    if count == AUTO:
        if budget_s is None:
            raise UsageError(
                f"--plan {AUTO} needs a budget",
                "add --budget 15m",
                code="missing-option",
            )
        return np.iinfo(np.int32).max
    try:
        number = integer(count)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(
            f"--plan {count!r} is not a number of problems",
            f"write --plan 20, or --plan {AUTO} --budget 15m",
            code="bad-number",
        )
    return number


def _places(plan: Plan) -> NDArray[np.float64]:
    problems = [task.problem for task in plan.tasks]
    place_of = operation_of_problem(problems[0]).problems.place
    return np.array([place_of(problem) for problem in problems])


def _within(draft: _Draft, kernels: int, budget_s: float, pace: Pace, *, keeps_all: bool) -> tuple[Task, ...]:
    """Tasks that fit in a budget and use it, at least one task and some kernels; all tasks if `keeps_all`."""
    tasks, needs_s = _searched(draft, kernels, budget_s, pace, keeps_all=keeps_all)
    known, spent_s = pace.spent(draft.by_worth)
    if known and needs_s < LEAST_USE * budget_s:  # few are left of so small a plan
        more, more_s = _searched(draft, kernels, budget_s, pace, known, spent_s, keeps_all=keeps_all)
        tasks = more if needs_s < more_s <= budget_s else tasks
    return tasks


def _searched(
    draft: _Draft,
    kernels: int,
    budget_s: float,
    pace: Pace,
    known: int = 0,
    spent_s: float = 0.0,
    *,
    keeps_all: bool,
) -> tuple[tuple[Task, ...], float]:
    """Tasks of a plan, and its seconds.

    The numbers of kernels and tasks start from mean costs, beyond `known` kernels and `spent_s` of measuring, and are
    then adjusted to the costs of the plan.
    """
    each_s = pace.kernel_s([task.kernels[0] for task in draft.by_worth])
    compiled = int(_COMPILING * budget_s / each_s) if each_s else kernels
    count = min(max(known + compiled, _FEWEST_KERNELS), kernels)
    left_s, low_s, high_s = spent_s + max(budget_s - max(count - known, 0) * each_s, 0.0), 0.0, math.inf
    best: tuple[Task, ...] = ()
    best_s, pairs = math.inf, 0
    for _ in range(_TRIALS):
        shots = _shots(draft.by_worth, count, left_s, pace, keeps_all=keeps_all)
        tasks = draft.tasks(*shots, limits_unknown=True)
        chosen = list({id(kernel): kernel for task in tasks for kernel in task.kernels}.values())
        compiling_s, measuring_s = pace.compiling_s(chosen), max(pace.measuring_s(tasks), _SHORTEST_S)
        needs_s = compiling_s + measuring_s
        if best_s < needs_s <= budget_s or (best_s > budget_s and needs_s < best_s):  # uses more, or exceeds less
            best, best_s = tasks, needs_s
        before, pairs = pairs, sum(len(task.kernels) for task in tasks)
        is_within = needs_s <= budget_s
        if is_within and (needs_s >= _USED * budget_s or (pairs == before and count == kernels)):
            break
        factor = 1.0
        if is_within and pairs == before:  # all kernels are measured on all problems
            factor = min(_AIM * budget_s / needs_s, _MOST_STEP)
        elif compiling_s > _COMPILING * budget_s > 0 and not is_within and len(chosen) <= _FEW_MORE * count:
            factor = _COMPILING * budget_s / compiling_s
        if factor != 1.0 and count > _FEWEST_KERNELS:
            count, low_s, high_s = min(kernels, max(_FEWEST_KERNELS, round(count * factor))), 0.0, math.inf
            continue
        low_s, high_s = (left_s, high_s) if is_within else (low_s, left_s)
        step = min(max((_AIM * budget_s - compiling_s) / measuring_s, 1 / _MOST_STEP), _MOST_STEP)
        left_s = (low_s + high_s) / 2 if low_s and high_s < math.inf else left_s * step
    return best, best_s


def _shots(by_worth: Sequence[Task], kernels: int, left_s: float, pace: Pace, *, keeps_all: bool) -> tuple[int, Shots]:
    """Numbers of tasks and kernels for a time; if all tasks fit, more kernels per task, else fewer if `keeps_all`."""
    shots = Shots(kernels=kernels)
    spent_s = 0.0
    for number, task in enumerate(by_worth):
        count = min(sum(shots.of_problem(len(task.kernels))), kernels)
        spent_s += pace.task_s(task.problem, count) / pace.workers
        if number and spent_s > left_s and not keeps_all:
            return number, shots
    best, others = (max(1, round(number * left_s / spent_s)) for number in (shots.best, shots.others))
    return len(by_worth), replace(shots, best=best, others=others)
