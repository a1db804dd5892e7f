"""The planner: which problems and kernels are measured, for all commands that spend measurements.

`KnownBefore` scores kernels by what is known before measuring: the nearest model or an estimate; without any, choices
are random, by a seed. `ckh bench --plan`, which `ckh tune` runs, selects problems and kernels with these scores
(`few_plan`), `ckh search measure` begins with the kernels of the highest ones, and `ckh predict --probe` times the
first choices of an answer (`first_choices`).

Problems are ordered by their marginal gain as representatives (facility location: the largest decrease of the sum of
distances of all problems to the nearest selected one), so that any prefix is a selection. For a problem the kernels
ranked first by prior knowledge are measured, and as many others, each about equally often. Few kernels of many problems
are more informative than many kernels of few problems: the prior may be wrong, and a model must see each kernel at
several sizes. Savings: `benchmarks/few_shots.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.errors import ModelError
from ckh.kernels.table import KernelTable
from ckh.learn.analytic.estimate import ESTIMATE
from ckh.learn.analytic.estimator import has_estimate
from ckh.learn.analytic.transfer import RANDOM, estimate_model, stand_in
from ckh.learn.answers.batches import PooledScores
from ckh.learn.models.artifact import find_model, fitting_models, load_model, wanted_for
from ckh.ops import operation_of_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Kernel, Problem

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

    def of_problem(self, kernels: int) -> tuple[int, int]:
        """Number of first and of other kernels for a problem with `kernels` kernels."""
        both = self.best + self.others
        others = min(both, kernels) * self.others // both
        return min(both, kernels) - others, others


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

    def gain(some: NDArray[np.int64]) -> NDArray[np.float32]:
        gained = np.maximum(nearest - distance[some], 0.0)
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

    def gain(some: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.maximum(np.take(worth, some, axis=1) - reached, 0.0).sum(axis=0) + of_all[some])

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
            some = order[~is_current[order]]
            self._bound[some] = gain(some)
            is_current[some] = True
        self._bound[first] = -1.0
        return first


def few_kernels(orders: Sequence[NDArray[np.int64]], shots: Shots, seed: int = 0) -> list[NDArray[np.int64]]:
    """Select the kernels to measure for each problem: its first useful ones, and the least selected others.

    `orders` are the kernel indices of each problem, best first; in random order without prior knowledge.
    """
    random, often = np.random.default_rng(seed), Counter[int]()
    useful = None if shots.kernels is None else useful_kernels(orders, shots.kernels)
    result = []
    for whole in orders:
        best, others = shots.of_problem(len(whole))
        known = whole if useful is None else whole[np.isin(whole, useful)]
        order = known if len(known) >= _FEWEST else whole[:_FEWEST]
        drawn = random.permutation(order[best:])
        counts = np.array([often[kernel] for kernel in drawn.tolist()])
        result.append(np.concatenate([order[:best], drawn[np.argsort(counts, kind="stable")[:others]]]))
        often.update(result[-1].tolist())
    return result


def first_choices(ranking: Ranking, count: int) -> list[Ranked]:
    """The first choices of an answer that the headers can build; those that they cannot where there are no others."""
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
