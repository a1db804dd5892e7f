"""The search: a loop that proposes a configuration and has it measured.

The surrogate proposes the configuration with the lowest optimistic time of a Gaussian process (lower confidence bound,
Srinivas et al. 2010); optimism alternates between low and high, i.e. between exploitation and exploration.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import DataError
from ckh.search.gaussian_process import GaussianProcess, features_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.search.space import Space

_DESIGN_POOL = 1000
_DESIGN = 10
_OPTIMISM = (1.0, 2.0)  # standard deviations, alternating
# A failure counts as a slow time, but not as an outlier, relative to the first successes: later ones are biased towards
# fast configurations.
_FAILED_QUANTILE, _FAILED_SAMPLE = 0.75, 20
_REFIT_EVERY = 4
_REFIT_GROWTH = 1.1
_FIRST_ITERATIONS, _ITERATIONS = 40, 20
_MAX_OBSERVED = 600
_MAX_POOL, _PRIOR_POOL = 30_000, 3_000
_RIDGE = 1.0


class StoppedError(Exception):
    """Raised by a measurement to stop the search: it was stopped before there was a result."""


def balanced_design(space: Space, count: int, rng: np.random.Generator) -> list[int]:
    """Choose configurations that share as few values as possible, greedily from a random pool.

    The cost of a candidate is the sum, over all chosen configurations, of the squared number of shared values: like a
    Latin hypercube for the first order, and like an orthogonal array for the second, but of legal configurations only.
    """
    pool = rng.permutation(len(space))[:_DESIGN_POOL]
    codes = space.codes[pool]
    cost = rng.random(len(pool)) * 1e-3
    chosen: list[int] = []
    for _ in range(min(count, len(pool))):
        best = int(np.argmin(cost))
        chosen.append(int(pool[best]))
        cost += np.count_nonzero(codes == codes[best], axis=1) ** 2
        cost[best] = np.inf
    return chosen


class Surrogate:
    """Proposes configurations of a space, each at most once; deterministic for a seed and results.

    A prior chooses half of the first measurements, and its regression on log time is the mean of the process: a good
    model helps at once, a useless one gets no weight.
    """

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
        self._expected: Sequence[int] = ()
        self._bounded: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None

    def ahead(self, count: int) -> list[int]:
        """Up to `count` configurations that are likely to be proposed next, the likeliest first.

        A caller can prepare several measurements in parallel; proposals do not change.
        """
        order: Sequence[int] | NDArray[np.int64] = self._expected
        if self._bounded is not None:  # the next result hardly changes the bounds
            pool, bound = self._bounded
            order = pool[np.argsort(bound, kind="stable")]
        return list(islice((int(index) for index in order if not self._is_proposed[index]), count))

    @property
    def is_exhausted(self) -> bool:
        """True if every configuration was proposed."""
        return bool(self._is_proposed.all())

    def _opening(self) -> Sequence[int]:
        """The first configurations: the starts, the prior's best, and a balanced design for the others."""
        top: list[int] = []
        if self._prior is not None:
            order = self._rng.permutation(len(self._space))
            top = order[np.argsort(-self._prior[order], kind="stable")][: (_DESIGN + 1) // 2].tolist()
        chosen = dict.fromkeys([*self._starts, *top])
        if len(chosen) < _DESIGN:
            chosen |= dict.fromkeys(balanced_design(self._space, _DESIGN, self._rng))
        self._expected = list(chosen)[: max(_DESIGN, len(self._starts))]
        return self._expected

    def search(
        self,
        evaluate: Callable[[int], float | None],
        evaluations: int,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[int, float | None]:
        """Measure what the surrogate proposes; the time of each configuration in order, None of one that failed."""
        times_ms: dict[int, float | None] = {}
        proposals = self._propose()
        while len(times_ms) < evaluations and not self.is_exhausted and not should_stop():
            index = next(proposals)
            self._is_proposed[index] = True
            try:
                times_ms[index] = time_ms = evaluate(index)
            except StoppedError:
                break
            self._time_ms[index] = np.inf if time_ms is None else time_ms
            self._answered.append(index)
        return times_ms

    def _propose(self) -> Iterator[int]:
        """Yield configurations not yet proposed; the time of each is known when the next one is drawn."""
        yield from self._opening()
        process = GaussianProcess(features_of(self._space))
        prior = None if self._prior is None else _standardised(self._prior)
        next_fit = 0
        observed: list[int] = []
        pool = np.empty(0, dtype=np.int64)
        position = -1
        while not self.is_exhausted:
            if not observed or len(self._answered) >= next_fit or process.is_full:
                observed, pool = self._modelled(), self._pool()
                rows = np.array(observed)
                targets, _ = self._targets(rows, prior)
                process.optimise(rows, targets, _ITERATIONS if next_fit else _FIRST_ITERATIONS)
                process.condition(rows, pool)
                next_fit = max(len(self._answered) + _REFIT_EVERY, int(len(self._answered) * _REFIT_GROWTH))
            else:
                process.extend(position)
                observed.append(int(pool[position]))
            bound = self._bound(process, np.array(observed), pool, prior)
            bound[self._is_proposed[pool]] = np.inf
            position = int(np.argmin(bound))
            self._bounded = pool, bound
            yield int(pool[position])

    def _bound(
        self,
        process: GaussianProcess,
        rows: NDArray[np.int64],
        pool: NDArray[np.int64],
        prior: NDArray[np.float64] | None,
    ) -> NDArray[np.float32]:
        """Lower confidence bound of each candidate's log time."""
        targets, slope = self._targets(rows, prior)
        mean, deviation = process.predict(targets)
        bound = mean - np.float32(_OPTIMISM[len(self._answered) % len(_OPTIMISM)]) * deviation
        if prior is not None:
            bound += (slope * prior[pool]).astype(np.float32)
        return np.asarray(bound)

    def _modelled(self) -> list[int]:
        """Measurements that the process is fitted to: all, or the fastest and a random part, in order."""
        if len(self._answered) <= _MAX_OBSERVED:
            return self._answered.copy()
        rows = np.array(self._answered)
        order = np.argsort(self._time_ms[rows], kind="stable")
        half = _MAX_OBSERVED // 2
        others = self._rng.choice(order[half:], half, replace=False)
        return [int(index) for index in rows[np.sort(np.concatenate([order[:half], others]))]]

    def _pool(self) -> NDArray[np.int64]:
        """The candidates: all remaining ones, or a random part, the prior's best and the neighbours of the fastest."""
        left = np.flatnonzero(~self._is_proposed)
        if len(left) <= _MAX_POOL:
            return left
        fastest = sorted(self._answered, key=self._time_ms.__getitem__)[:_DESIGN]
        near = np.concatenate([self._space.neighbours(index) for index in fastest])
        best = left[:0] if self._prior is None else left[np.argsort(-self._prior[left], kind="stable")[:_PRIOR_POOL]]
        part = np.concatenate([self._rng.choice(left, _MAX_POOL, replace=False), near, best])
        return np.unique(part[~self._is_proposed[part]])

    def _targets(self, rows: NDArray[np.int64], prior: NDArray[np.float64] | None) -> tuple[NDArray[np.float64], float]:
        """Standardised residuals of log times after regression on the prior, and the prior's slope in the same unit."""
        times = self._time_ms[rows]
        is_ok = np.isfinite(times)
        if not is_ok.any():
            return np.zeros(len(rows)), 0.0
        logs = np.log(times, where=is_ok, out=np.empty(len(rows)))
        logs[~is_ok] = np.quantile(logs[is_ok][:_FAILED_SAMPLE], _FAILED_QUANTILE)
        targets = _standardised(logs)
        if prior is None:
            return targets, 0.0
        scores = prior[rows]
        slope = float(scores @ targets / (scores @ scores + _RIDGE))
        return targets - slope * scores, slope


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((values - values.mean()) / (values.std() + 1e-9))
