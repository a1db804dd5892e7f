"""Active learning: select the next pairs to measure while results arrive.

Problems come in the order of their marginal gain as representatives (`few_shots.representative`), measured and pending
problems included, so parallel workers cover different regions. For a problem the kernels ranked first by prior
knowledge are selected, and the least selected others; once a model of the results so far generalizes better to unseen
problems, only its first few. So few problems with many kernels are followed by many problems with few.

After all problems were measured, they are revisited, each on the device that measured it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ckh.learn.selection.few_shots import KERNELS, Counted, Shots, representative, useful_kernels
from ckh.training import TrainOptions, TreeParams

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from numpy.typing import NDArray

# Trees that are grown in a second, for a model that is soon replaced.
QUICK_TREES = TreeParams(100, 0.1, 31, colsample_bytree=0.4, path_smooth=20.0)
# By replay of gfx950's 20-kernel file: four are better than six, and than four with others.
LEADERS = Shots(best=4, others=0)
FEWEST_LEARNED = 6  # problems from whose results a model may choose
_ORDERED = 200  # problems by whose orders the useful kernels are chosen
_GROWTH = 1.3  # of the pairs, until a model learns again


class Scores(Protocol):
    """Current scores of kernels."""

    def __call__(self, problem: int, kernels: NDArray[np.int64], /) -> NDArray[np.float64] | None:
        """Scores of a problem's kernels, higher is faster; None: unknown."""


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
        return self.kernels[~np.isin(self.kernels, list(self.chosen))]


class PairChooser:
    """Selects pairs of a problem at a time; selected pairs are pending until their results arrive.

    Args:
        places: the problems as points, shape (problems, coordinates).
        kernels: of each problem the numbers of the kernels that may be measured.
        scores: what is known of them before.
        shots: how many of a problem are measured at a time, and useful ones in all that each model adds.
        seed: what is drawn at random follows from it.

    Attributes:
        useful: the numbers of the kernels that are chosen from.
    """

    def __init__(
        self,
        places: NDArray[np.float64],
        kernels: Sequence[NDArray[np.int64]],
        scores: Scores,
        shots: Shots | None = None,
        seed: int = 0,
    ) -> None:
        self._shots = shots or Shots()
        self._random = np.random.default_rng(seed)
        self._counted = Counted(self._random)
        self._of = [_Of(one) for one in kernels]
        by_worth = list(representative(places, seed))
        others = self._random.permutation(np.setdiff1d(np.arange(len(places)), by_worth)).tolist()
        self._first: deque[int] = deque([*by_worth, *others])
        self.useful: set[int] = set()
        self.learn(scores, self.useful_by(scores))

    def useful_by(self, scores: Scores) -> set[int]:
        """Kernels to select from, and those useful by other scores."""
        drawn = np.sort(self._random.permutation(len(self._of))[:_ORDERED]).tolist()
        orders = [self._ordered(scores, number, self._of[number].kernels) for number in drawn]
        return self.useful | set(useful_kernels(orders, self._shots.kernels or KERNELS).tolist())

    def learn(self, scores: Scores, useful: set[int], learned: Container[int] = ()) -> None:
        """Use these scores and kernels from now on.

        Args:
            scores: what is known now.
            useful: the kernels that are chosen from.
            learned: problems whose scores are those of a model of the results.
        """
        self._scores, self.useful, self._learned = scores, useful, learned

    def take(self, problem: int, kernels: Sequence[int], node: str) -> None:
        """Mark kernels of a problem as measured on a node earlier."""
        of = self._of[problem]
        of.chosen |= set(kernels)
        of.node = node

    def next(self, node: str) -> Chosen | None:
        """The next pairs for a node's device; None if nothing is left."""
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
        """Problems that a node may measure further: number of pairs, and indices."""
        return [
            (len(of.chosen), number)
            for number, of in enumerate(self._of)
            if of.node == node and not of.is_pending and len(of.left) > 0
        ]

    def _kernels(self, problem: int) -> NDArray[np.int64]:
        of = self._of[problem]
        shots = LEADERS if problem in self._learned else self._shots
        best, others = shots.of_problem(len(of.kernels))
        left = of.left
        useful = left[np.isin(left, list(self.useful))]
        enough = useful if len(useful) >= min(best, len(left)) else left
        order = self._ordered(self._scores, problem, enough)
        return self._counted.take(order[:best], order[best:], others)

    def _ordered(self, scores: Scores, problem: int, kernels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Kernels of a problem, best first; in random order without scores."""
        values = scores(problem, kernels)
        return self._random.permutation(kernels) if values is None else kernels[np.argsort(-values, kind="stable")]


def quick_options(defaults: TrainOptions, jobs: int = 1) -> TrainOptions:
    """Training options of the models that select: the operation's, with fewer trees."""
    return replace(defaults, targets=(), folds=0, ensemble=1, params=QUICK_TREES, jobs=jobs)


def is_due(pairs: int, learned: int) -> bool:
    """True if enough results were added since the last model."""
    return pairs >= _GROWTH * learned
