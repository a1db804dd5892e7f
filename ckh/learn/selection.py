"""Experimental design: choose the problems and kernels whose measurement is most informative.

Problems are ordered by their marginal gain as representatives (facility location: the largest decrease of the sum of
distances of all problems to the nearest selected one), so that any prefix is a selection. For a problem the kernels
ranked first by prior knowledge (the nearest model or an estimate) are measured, and as many others, each about equally
often. Few kernels of many problems are more informative than many kernels of few problems: the prior may be wrong, and
a model must see each kernel at several sizes. Savings: `benchmarks/few_shots.py`.

`PairChooser` makes these choices, problem by problem. A plan (`few_kernels`) is its choices before any result. An
active run uses it while results arrive (`benchmarks/active.py`): pending problems count as measured, so parallel
workers cover different regions; once a model of the results so far generalizes better to unseen problems, only its
first few kernels are measured; and after all problems were measured, they are revisited, each on the device that
measured it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ckh.training import TrainOptions, TreeParams

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

# From a replay of the host's training layers, at 150 and 330 pairs: 240 kernels are better than 120 and 60, and as
# good as all; six first and six other kernels of a problem are better than four and four at 330, and as good at 150.
KERNELS = 240
MOST_PROBLEMS = 2000  # maximum to choose from, by a random sample: distances of all pairs are computed
_HALF_WORTH = 5.0  # rank at which a kernel has half the weight of the first
_FEWEST = 4  # useful kernels of a problem; with fewer, its own first kernels are measured
_PROBLEMS_AT_ONCE, _KERNELS_AT_ONCE = 32, 1024  # re-evaluated together by the lazy greedy selection
_OF_ALL = 1e-3  # weight of kernels on problems already covered by a better kernel
# Trees that train in a second, for a model that is soon replaced.
QUICK_TREES = TreeParams(100, 0.1, 31, colsample_bytree=0.4, path_smooth=20.0)
FEWEST_LEARNED = 6  # minimum number of problems with results before a model selects
_ORDERED = 200  # problems whose rankings select the useful kernels
_GROWTH = 1.3  # of the pairs, before a model is trained again


@dataclass(frozen=True, slots=True)
class Shots:
    """Amount of measuring.

    Attributes:
        kernels: number of distinct kernels; None: no limit.
        best: kernels per problem, ranked first by prior knowledge.
        others: kernels per problem, the least measured so far: a model must also see slow kernels.
    """

    kernels: int | None = KERNELS
    best: int = 6
    others: int = 6

    def of_problem(self, kernels: int) -> tuple[int, int]:
        """Number of first and of other kernels for a problem with `kernels` kernels."""
        both = self.best + self.others
        others = min(both, kernels) * self.others // both
        return min(both, kernels) - others, others


# From a replay of gfx950's 20-kernel file: four are better than six, and than four with others.
LEADERS = Shots(best=4, others=0)


class Scores(Protocol):
    """Current scores of kernels."""

    def __call__(self, problem: int, kernels: NDArray[np.int64], /) -> NDArray[np.float64] | None:
        """Score a problem's kernels, higher is faster; None: unknown."""


def representative(
    places: NDArray[np.float64], seed: int = 0, weights: NDArray[np.float64] | None = None
) -> Iterator[int]:
    """Yield indices of problems by marginal gain as representatives: any prefix is a selection.

    Args:
        places: the problems as points, shape (problems, coordinates).
        seed: random seed, for sampling too many problems.
        weights: weight of each problem's distance, shape (problems,); equal by default.
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
    """Select kernels that cover the first kernels of every problem, the most useful first.

    Args:
        orders: kernel indices of each problem, best first.
        count: number of kernels to select, or all if there are fewer.
    """
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
    equals that of evaluating all.

    Args:
        gain: initial gain of each item, shape (items,); negative for items to exclude.
        at_once: number of items to re-evaluate together.
    """

    def __init__(self, gain: NDArray[np.floating[Any]], at_once: int) -> None:
        self._bound = gain.copy()
        self._at_once = min(at_once, len(gain))

    def take(self, gain: Callable[[NDArray[np.int64]], NDArray[np.floating[Any]]]) -> int:
        """Select the next item.

        Args:
            gain: current gains of items, by index.
        """
        is_current = self._bound < 0
        while not is_current[first := int(self._bound.argmax())]:
            order = np.argpartition(np.where(is_current, 1.0, -self._bound), self._at_once - 1)[: self._at_once]
            some = order[~is_current[order]]
            self._bound[some] = gain(some)
            is_current[some] = True
        self._bound[first] = -1.0
        return first


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A problem and the indices of its kernels to measure."""

    problem: int
    kernels: NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _Of:
    """A problem: its kernels, those selected, their node, and whether results are pending."""

    kernels: NDArray[np.int64]
    chosen: set[int] = field(default_factory=set)
    node: str | None = None
    is_pending: bool = False

    @property
    def left(self) -> NDArray[np.int64]:
        """Kernels not yet selected."""
        return self.kernels[~np.isin(self.kernels, list(self.chosen))] if self.chosen else self.kernels


class PairChooser:
    """Selects pairs, one problem at a time; selected pairs are pending until their results arrive.

    Args:
        order: indices of the problems in the order of selection.
        kernels: for each problem the indices of its measurable kernels.
        scores: prior scores; without scores, kernels are selected at random.
        shots: kernels of a problem measured at a time, and number of useful kernels that each model adds.
        seed: random seed.
        ordered: number of first problems whose rankings select the useful kernels.

    Attributes:
        useful: indices of the kernels to choose from.
    """

    def __init__(
        self,
        order: Iterable[int],
        kernels: Sequence[NDArray[np.int64]],
        scores: Scores,
        shots: Shots | None = None,
        seed: int = 0,
        ordered: int = _ORDERED,
    ) -> None:
        self._shots = shots or Shots()
        self._random = np.random.default_rng(seed)
        self._counts: Counter[int] = Counter()
        self._of = [_Of(kernel) for kernel in kernels]
        self._first: deque[int] = deque(order)
        self._drawn = list(self._first)[:ordered]
        self.useful: set[int] = set()
        self.learn(scores, self.useful_by(scores))

    def useful_by(self, scores: Scores) -> set[int]:
        """Return the kernels to choose from, and those useful by other scores."""
        if self._shots.kernels is None:
            return {kernel for of in self._of for kernel in of.kernels.tolist()}
        orders = [self._ordered(scores, number, self._of[number].kernels) for number in self._drawn]
        return self.useful | set(useful_kernels(orders, self._shots.kernels).tolist())

    def learn(self, scores: Scores, useful: set[int], learned: Container[int] = ()) -> None:
        """Replace scores and useful kernels.

        Args:
            scores: the new scores.
            useful: the kernels to choose from.
            learned: problems whose scores are from a model of the results.
        """
        self._scores, self.useful, self._learned = scores, useful, learned

    def take(self, problem: int, kernels: Sequence[int], node: str) -> None:
        """Mark kernels of a problem as measured earlier on a node."""
        of = self._of[problem]
        of.chosen |= set(kernels)
        of.node = node

    def next(self, node: str) -> Chosen | None:
        """Select the next pairs for a node's device; None if nothing is left."""
        problem = self._next_problem(node)
        if problem is None:
            return None
        of = self._of[problem]
        chosen = Chosen(problem, self._kernels(problem))
        of.chosen |= set(chosen.kernels.tolist())
        of.is_pending = True
        return chosen

    def done(self, chosen: Chosen, node: str) -> None:
        """Mark the results of selected pairs as complete; the node may differ from the planned one."""
        of = self._of[chosen.problem]
        of.node, of.is_pending = node, False

    def is_done(self, node: str) -> bool:
        """True if nothing is left for a node's device."""
        return not self._again(node) and all(self._of[problem].chosen for problem in self._first)

    def _next_problem(self, node: str) -> int | None:
        while self._first:
            problem = self._first.popleft()
            if not self._of[problem].chosen:
                return problem
        again = self._again(node)
        return min(again)[1] if again else None

    def _again(self, node: str) -> list[tuple[int, int]]:
        """Problems that a node may continue: number of pairs, and indices."""
        return [
            (len(of.chosen), number)
            for number, of in enumerate(self._of)
            if of.node == node and not of.is_pending and len(of.left) > 0
        ]

    def _kernels(self, problem: int) -> NDArray[np.int64]:
        """The first useful kernels of a problem, and the least selected others."""
        of = self._of[problem]
        best, others = (LEADERS if problem in self._learned else self._shots).of_problem(len(of.kernels))
        order = self._ordered(self._scores, problem, of.left)
        useful = order[np.isin(order, list(self.useful))]
        order = order[:_FEWEST] if len(useful) < _FEWEST else useful
        drawn = self._random.permutation(order[best:])
        often = np.array([self._counts[kernel] for kernel in drawn.tolist()])
        taken = np.concatenate([order[:best], drawn[np.argsort(often, kind="stable")[:others]]])
        self._counts.update(taken.tolist())
        return taken

    def _ordered(self, scores: Scores, problem: int, kernels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Kernels of a problem, best first; in random order without scores."""
        values = scores(problem, kernels)
        return self._random.permutation(kernels) if values is None else kernels[np.argsort(-values, kind="stable")]


def by_worth(places: NDArray[np.float64], seed: int = 0) -> list[int]:
    """Indices of all problems as points, shape (problems, coordinates): those of `representative`, then the others."""
    first = list(representative(places, seed))
    others = np.setdiff1d(np.arange(len(places)), first)
    return [*first, *np.random.default_rng(seed).permutation(others).tolist()]


def few_kernels(orders: Sequence[NDArray[np.int64]], shots: Shots, seed: int = 0) -> list[NDArray[np.int64]]:
    """Select the kernels to measure for each problem: the choices of `PairChooser` before any result.

    Args:
        orders: kernel indices of each problem, best first; random without prior knowledge.
        shots: number of kernels.
        seed: random seed of the other kernels.
    """
    numbers = range(len(orders))
    chooser = PairChooser(numbers, orders, lambda _, kernels: -np.arange(float(len(kernels))), shots, seed, len(orders))
    return [chosen.kernels for _ in orders if (chosen := chooser.next("")) is not None]


def quick_options(defaults: TrainOptions, jobs: int = 1) -> TrainOptions:
    """Training options of the models used for selection: the operation's, with fewer trees."""
    return replace(defaults, targets=(), folds=0, params=QUICK_TREES, jobs=jobs)


def is_due(pairs: int, learned: int) -> bool:
    """True if enough results were added since the last model."""
    return pairs >= _GROWTH * learned
