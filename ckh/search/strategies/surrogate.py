"""The default: a Gaussian process of log time, and the configuration whose optimistic time is the lowest next.

Optimism (lower confidence bound, Srinivas et al. 2010) takes turns between a little and much, so that every other
measurement refines what is known to be fast and every other one looks where little is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.search.gp import GaussianProcess, features_of
from ckh.search.strategies.base import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

_DESIGN = 10
_OPTIMISM = (1.0, 2.0)  # standard deviations, in turns
# A failure counts as a slow time, but no outlier, of the first that worked: later ones are faster than the space is.
_FAILED_QUANTILE, _FAILED_SAMPLE = 0.75, 20
_REFIT_EVERY = 4
_REFIT_GROWTH = 1.1
_FIRST_ITERATIONS, _ITERATIONS = 40, 20
_MAX_OBSERVED = 600
_MAX_POOL, _PRIOR_POOL = 30_000, 3_000
_RIDGE = 1.0


class Surrogate(Strategy):
    """Bayesian optimisation over the whole space.

    A prior gives half of the first measurements, and its regression on log time is the mean of the process: a good
    model carries at once, a useless one gets no weight.
    """

    _bounded: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None

    def _outlook(self) -> Iterable[int]:
        """After the opening, those with the lowest bounds: the next answer changes them little."""
        if self._bounded is None:
            return super()._outlook()
        pool, bound = self._bounded
        return (int(index) for index in pool[np.argsort(bound, kind="stable")])

    def _propose(self) -> Iterator[int]:
        yield from self._opening(_DESIGN, (_DESIGN + 1) // 2)
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
        """How low the log time of each candidate may be."""
        targets, slope = self._targets(rows, prior)
        mean, deviation = process.predict(targets)
        bound = mean - np.float32(_OPTIMISM[len(self._answered) % len(_OPTIMISM)]) * deviation
        if prior is not None:
            bound += (slope * prior[pool]).astype(np.float32)
        return np.asarray(bound)

    def _modelled(self) -> list[int]:
        """The measurements that the process learns from: all, or the fastest and a random part, in their order."""
        if len(self._answered) <= _MAX_OBSERVED:
            return self._answered.copy()
        rows = np.array(self._answered)
        order = np.argsort(self._time_ms[rows], kind="stable")
        half = _MAX_OBSERVED // 2
        others = self._rng.choice(order[half:], half, replace=False)
        return [int(index) for index in rows[np.sort(np.concatenate([order[:half], others]))]]

    def _pool(self) -> NDArray[np.int64]:
        """The candidates: all that is left, or a random part, the prior's best and the neighbours of the fastest."""
        left = np.flatnonzero(~self._is_proposed)
        if len(left) <= _MAX_POOL:
            return left
        fastest = sorted(self._answered, key=self._time_ms.__getitem__)[:_DESIGN]
        near = np.concatenate([self._space.neighbours(index) for index in fastest])
        best = left[:0] if self._prior is None else left[np.argsort(-self._prior[left], kind="stable")[:_PRIOR_POOL]]
        part = np.concatenate([self._rng.choice(left, _MAX_POOL, replace=False), near, best])
        return np.unique(part[~self._is_proposed[part]])

    def _targets(self, rows: NDArray[np.int64], prior: NDArray[np.float64] | None) -> tuple[NDArray[np.float64], float]:
        """Standardised log times less what the prior explains, and the slope of the prior in that unit."""
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
