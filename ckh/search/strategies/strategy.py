"""Base class of strategies, with the ask-and-tell interface: request a configuration, then report its time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.search.strategy_space import Space

_TOP_SHARE = 0.02
_TOP_MIN = 50


_POOL = 1000


def balanced_design(space: Space, count: int, rng: np.random.Generator) -> list[int]:
    """Choose configurations that share as few values as possible, greedily from a random pool.

    The cost of a candidate is the sum, over all chosen configurations, of the squared number of shared values: like a
    Latin hypercube for the first order, and like an orthogonal array for the second, but of legal configurations only.
    """
    pool = rng.permutation(len(space))[:_POOL]
    codes = space.codes[pool]
    cost = rng.random(len(pool)) * 1e-3
    chosen: list[int] = []
    for _ in range(min(count, len(pool))):
        best = int(np.argmin(cost))
        chosen.append(int(pool[best]))
        cost += _shared(codes, codes[best]) ** 2
        cost[best] = np.inf
    return chosen


def _shared(codes: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.asarray(np.count_nonzero(codes == row, axis=1))


class Strategy(ABC):
    """Proposes configurations of a space, each at most once; deterministic for a seed and results."""

    def __init__(
        self, space: Space, seed: int = 0, prior: NDArray[np.float64] | None = None, starts: Sequence[int] = ()
    ) -> None:
        if prior is not None and (np.shape(prior) != (len(space),) or not np.isfinite(prior).all()):
            raise DataError(
                f"a prior needs one finite score for each of the {len(space)} configurations", code="bad-column"
            )
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._prior = prior
        self._starts = tuple(starts)
        self._is_proposed = np.zeros(len(space), dtype=bool)
        # Infinite if it failed; NaN if it was not measured.
        self._time_ms = np.full(len(space), np.nan)
        self._answered: list[int] = []
        self._pending: int | None = None
        self._expected: Sequence[int] = ()
        self._proposals: Iterator[int] | None = None

    def ahead(self, count: int) -> list[int]:
        """Up to `count` configurations that are likely to be requested next, the likeliest first.

        A caller can prepare several measurements in parallel; requests do not change.
        """
        return list(islice((int(index) for index in self._outlook() if not self._is_proposed[index]), count))

    def _outlook(self) -> Iterable[int]:
        """Configurations in the expected order, including those already requested."""
        return self._expected

    @property
    def is_exhausted(self) -> bool:
        """True if every configuration was requested."""
        return bool(self._is_proposed.all())

    def ask(self) -> int:
        """The configuration to measure next."""
        if self._pending is not None:
            raise ValueError("report the time of the last configuration before requesting another")
        if self.is_exhausted:
            raise ValueError("every configuration of the space was requested")
        if self._proposals is None:
            self._proposals = self._propose()
        index = int(next(self._proposals))
        assert not self._is_proposed[index]
        self._is_proposed[index] = True
        self._pending = index
        return index

    def tell(self, index: int, time_ms: float | None) -> None:
        """Report the time of the configuration returned by `ask`."""
        if index != self._pending:
            raise ValueError(f"configuration {index} was not the last one requested")
        if time_ms is not None and not (np.isfinite(time_ms) and time_ms > 0):
            raise ValueError(f"a time must be a positive number, not {time_ms}; a failure is None")
        self._time_ms[index] = np.inf if time_ms is None else time_ms
        self._answered.append(index)
        self._pending = None

    @abstractmethod
    def _propose(self) -> Iterator[int]:
        """Yield configurations not yet requested; the time of each is known when the next one is drawn."""

    def _opening(self, count: int, by_prior: int) -> Sequence[int]:
        """The first configurations: the starts, the prior's best, and a balanced design for the rest of `count`."""
        top = [] if self._prior is None else self._by_prior()[:by_prior].tolist()
        chosen = dict.fromkeys([*self._starts, *top])
        if len(chosen) < count:
            chosen |= dict.fromkeys(balanced_design(self._space, count, self._rng))
        self._expected = list(chosen)[: max(count, len(self._starts))]
        return self._expected

    def _random_left(self) -> int:
        return int(self._rng.choice(np.flatnonzero(~self._is_proposed)))

    def _by_prior(self) -> NDArray[np.int64]:
        """All configurations, highest prior first; in random order without a prior."""
        order = self._rng.permutation(len(self._space))
        return order if self._prior is None else order[np.argsort(-self._prior[order], kind="stable")]

    def _nearest_left(self, codes: NDArray[np.int32]) -> int:
        """The configuration nearest to another, legal or not, among those not yet requested; ties at random."""
        left = np.flatnonzero(~self._is_proposed)
        distances = self._space.distances(codes)[left]
        return int(self._rng.choice(left[distances == distances.min()]))


class RandomOrder(Strategy):
    """Uniformly random order; with a prior, its best 2 % (at least 50) first."""

    def _propose(self) -> Iterator[int]:
        order = self._by_prior()
        if self._prior is not None:
            top = max(_TOP_MIN, int(np.ceil(_TOP_SHARE * len(order))))
            order = np.concatenate([self._rng.permutation(order[:top]), self._rng.permutation(order[top:])])
        self._expected = list(dict.fromkeys([*self._starts, *order.tolist()]))
        yield from self._expected
