"""Experimental design: choose the problems and kernels whose measurement is most informative.

Problems are selected greedily to minimize the sum of distances of all problems to the nearest selected one (facility
location), so the first N are a selection of N. For a problem the kernels ranked first by prior knowledge (the nearest
model or an estimate) are measured, and as many others, each about equally often. Few kernels of many problems are more
informative than many kernels of few: the prior may mislead, and a model must see each kernel at several sizes. Savings:
`benchmarks/few_shots.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

# By replay of the host's training layers, at 150 and 330 pairs: 240 kernels are better than 120 and 60, and as good as
# all; six first and six other ones of a problem are better than four and four at 330, and good enough at 150.
KERNELS = 240
MOST_PROBLEMS = 2000  # that are chosen from, of more a random sample: distances of all pairs are computed
_HALF_WORTH = 5.0  # the place in a problem's order at which a kernel is worth half of the first
_FEWEST = 4  # useful kernels of a problem; of one that has fewer the first in its own order are measured
_PROBLEMS_AT_ONCE, _KERNELS_AT_ONCE = 32, 1024  # that a lazy greedy choice looks at again together
_OF_ALL = 1e-3  # weight of what a kernel is worth on problems that have a better one already


@dataclass(frozen=True, slots=True)
class Shots:
    """Amount of measuring.

    Attributes:
        kernels: number of distinct kernels; None: no limit.
        best: kernels per problem, ranked first by prior knowledge.
        others: kernels per problem, the least measured so far: a model must see slow kernels, too.
    """

    kernels: int | None = KERNELS
    best: int = 6
    others: int = 6

    def of_problem(self, kernels: int) -> tuple[int, int]:
        """Number of first and of other kernels for a problem with so many kernels."""
        both = self.best + self.others
        others = min(both, kernels) * self.others // both
        return min(both, kernels) - others, others


def representative(places: NDArray[np.float64], seed: int = 0) -> Iterator[int]:
    """Indices of problems by marginal gain as representatives: any prefix is a selection.

    Args:
        places: the problems as points, shape (problems, coordinates).
        seed: what a sample of too many problems follows from.
    """
    drawn = np.arange(len(places))
    if len(drawn) > MOST_PROBLEMS:
        drawn = np.sort(np.random.default_rng(seed).choice(drawn, MOST_PROBLEMS, replace=False))
    points = np.asarray(places, dtype=np.float64)[drawn]
    squares = (points**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * points @ points.T, 0.0)).astype(np.float32)
    nearest = np.full(len(drawn), 2 * distance.max() + 1, dtype=np.float32)

    def gain(some: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.asarray(np.maximum(nearest - distance[some], 0.0).sum(axis=1))

    greedy = _LazyGreedy(gain(np.arange(len(drawn))), _PROBLEMS_AT_ONCE)
    for _ in drawn:
        chosen = greedy.take(gain)
        nearest = np.minimum(nearest, distance[chosen])
        yield int(drawn[chosen])


def useful_kernels(orders: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Kernels that cover the first ones of every problem, the most useful first.

    Args:
        orders: of each problem the numbers of its kernels, best first.
        count: how many; of fewer kernels all.
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

    As a thing never brings more than before, what it brought when it was last looked at is a bound: few are looked at
    again before one is taken. The choice is that of looking at all.

    Args:
        gain: what each brings at first, shape (things,); less than 0 for those that are not to be taken.
        at_once: how many are looked at again together.
    """

    def __init__(self, gain: NDArray[np.floating[Any]], at_once: int) -> None:
        self._bound = gain.copy()
        self._at_once = min(at_once, len(gain))

    def take(self, gain: Callable[[NDArray[np.int64]], NDArray[np.floating[Any]]]) -> int:
        """Select the next item.

        Args:
            gain: what things bring now, by number.
        """
        is_current = self._bound < 0
        while not is_current[first := int(self._bound.argmax())]:
            order = np.argpartition(np.where(is_current, 1.0, -self._bound), self._at_once - 1)[: self._at_once]
            some = order[~is_current[order]]
            self._bound[some] = gain(some)
            is_current[some] = True
        self._bound[first] = -1.0
        return first


class Counted:
    """Selection counts of kernels, to balance the kernels selected besides the first.

    Args:
        random: decides between kernels that were chosen as often.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._counts: Counter[int] = Counter()

    def take(self, best: NDArray[np.int64], rest: NDArray[np.int64], others: int) -> NDArray[np.int64]:
        """Select the first kernels of a problem, and so many of the others."""
        drawn = self._random.permutation(rest)
        often = np.array([self._counts[kernel] for kernel in drawn.tolist()])
        taken = np.concatenate([best, drawn[np.argsort(often, kind="stable")[:others]]])
        self._counts.update(taken.tolist())
        return taken


def few_kernels(orders: Sequence[NDArray[np.int64]], shots: Shots, seed: int = 0) -> list[NDArray[np.int64]]:
    """Kernels to measure for each problem: its first useful ones, and others, each about equally often.

    Args:
        orders: of each problem the numbers of its kernels, best first; at random where nothing is known before.
        shots: how many.
        seed: what the others follow from.
    """
    useful = None if shots.kernels is None else useful_kernels(orders, shots.kernels)
    counted = Counted(np.random.default_rng(seed))
    found = []
    for order in orders:
        left = order if useful is None else order[np.isin(order, useful)]
        left = order[:_FEWEST] if len(left) < _FEWEST else left
        best, others = shots.of_problem(len(order))
        found.append(counted.take(left[:best], left[best:], others))
    return found
