"""The default strategy: a Gaussian process of log time; the next configuration has the lowest optimistic time.

Optimism (lower confidence bound, Srinivas et al. 2010) alternates between low and high, i.e. between exploitation and
exploration.

The Gaussian process is over a fixed pool of configurations and designed for adding single observations. It has a Matérn
5/2 kernel with a weight (an inverse squared length scale) for each group of features; the hyperparameters are the mode
of their posterior under wide log-normal priors. Adding an observation adds one row to the whitened covariance between
observations and pool, O(observations x pool), in single precision; see Rasmussen & Williams, Gaussian Processes for
Machine Learning (2006), algorithm 2.1 and section 5.4.1.

Features of a configuration are numbers scaled to 0..1, one-hot categories, and alignment. Alignment is the exponent of
2 in a number: memory transactions, vector loads and waves have sizes of powers of two, so 128 is more similar to 64
than to 112. Powers of two need no such feature, as their rank expresses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from ckh.search.strategies.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from ckh.search.strategy_space import Parameter, Space

_BINARY = 2


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """A matrix, shape (configurations, features), and the group of each feature, which share one length scale."""

    matrix: NDArray[np.float64]
    groups: NDArray[np.int64]


def features_of(space: Space) -> Features:
    """Features of every configuration; parameters with a single value are omitted."""
    columns: list[NDArray[np.float64]] = []
    groups: list[int] = []
    for i, parameter in enumerate(space.parameters):
        for block in _blocks(parameter):
            group = max(groups, default=-1) + 1
            columns += [block[space.codes[:, i], j] for j in range(block.shape[1])]
            groups += [group] * block.shape[1]
    if not columns:
        return Features(np.zeros((len(space), 1)), np.zeros(1, dtype=np.int64))
    return Features(np.stack(columns, axis=1), np.array(groups))


def _blocks(parameter: Parameter) -> list[NDArray[np.float64]]:
    """Feature values of each value of a parameter, shape (values, features), one array for each length scale."""
    count = len(parameter.values)
    if count == 1:
        return []
    if not parameter.is_ordered and count > _BINARY:
        # Two different categories are then as far apart as the ends of a scale.
        return [np.eye(count) / np.sqrt(2)]
    blocks = [np.linspace(0, 1, count)[:, None]]
    alignment = _alignment(parameter)
    return blocks if alignment is None else [*blocks, alignment[:, None]]


def _alignment(parameter: Parameter) -> NDArray[np.float64] | None:
    if not parameter.is_ordered or not all(value > 0 and value == int(value) for value in parameter.values):
        return None
    twos = np.array([(int(value) & -int(value)).bit_length() for value in parameter.values], dtype=np.float64)
    is_rank = all(int(value).bit_count() == 1 for value in parameter.values)
    if is_rank or np.ptp(twos) == 0:
        return None
    return np.asarray((twos - twos.min()) / np.ptp(twos))


_ROOT5 = float(np.sqrt(5.0))
_JITTER = 1e-5
# Log-normal priors, (mean, standard deviation) of the logarithm: weights, signal variance, noise variance. Targets are
# standardised and features span 0..1.
_WEIGHT = (0.0, 1.5)
_SIGNAL = (0.0, 1.0)
_NOISE = (float(np.log(1e-2)), 1.5)
_BOUNDS = {"weight": (-8.0, 5.0), "signal": (-3.0, 3.0), "noise": (-9.0, 0.0)}
_GROWTH = 64


class GaussianProcess:
    """Fit with `fit`, add single observations with `extend`, predict the whole pool with `predict`."""

    def __init__(self, features: Features) -> None:
        self._matrix = features.matrix
        self._groups = features.groups
        count = int(features.groups.max()) + 1
        self._mean = np.array([*[_WEIGHT[0]] * count, _SIGNAL[0], _NOISE[0]])
        self._deviation = np.array([*[_WEIGHT[1]] * count, _SIGNAL[1], _NOISE[1]])
        self._bounds = [*[_BOUNDS["weight"]] * count, _BOUNDS["signal"], _BOUNDS["noise"]]
        self._theta = self._mean.copy()

    def optimise(self, rows: NDArray[np.int64], targets: NDArray[np.float64], iterations: int) -> None:
        """Move the hyperparameters towards the mode of their posterior, from their current values."""
        result = minimize(
            self._loss,
            self._theta,
            args=(self._matrix[rows], targets),
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds,
            options={"maxiter": iterations},
        )
        self._theta = np.asarray(result.x)

    def condition(self, rows: NDArray[np.int64], pool: NDArray[np.int64]) -> None:
        """Restart with the given observed configurations and the configurations to predict."""
        weights, self._signal, self._noise = self._parameters(self._theta)
        scaled = self._matrix[pool] * np.sqrt(weights)
        self._pool = scaled.astype(np.float32)
        self._pool_norms = (self._pool**2).sum(axis=1)
        observed = self._matrix[rows] * np.sqrt(weights)
        kernel = self._signal * _matern(_squared_distances(observed, observed))
        kernel[np.diag_indices(len(rows))] += self._noise
        self._count = len(rows)
        self._root = np.zeros((self._count + _GROWTH, self._count + _GROWTH))
        self._root[: self._count, : self._count] = lower = np.linalg.cholesky(kernel)
        self._white = np.empty((self._count + _GROWTH, len(pool)), dtype=np.float32)
        inverse = np.linalg.inv(lower).astype(np.float32)
        self._white[: self._count] = inverse @ self._covariance(observed.astype(np.float32))
        self._variance = np.float32(self._signal) - (self._white[: self._count] ** 2).sum(axis=0)

    @property
    def is_full(self) -> bool:
        """True if `condition` must be called before another `extend`."""
        return self._count == len(self._root)

    def extend(self, position: int) -> None:
        """Add an observation of the configuration at a position of the pool."""
        count = self._count
        covariance = self._covariance(self._pool[position : position + 1])[0]
        white = self._white[:count, position].copy()
        rest = self._signal + self._noise - float((white.astype(np.float64) ** 2).sum())
        diagonal = np.sqrt(max(rest, _JITTER))
        row = (covariance - white @ self._white[:count]) / np.float32(diagonal)
        self._root[count, :count] = white
        self._root[count, count] = diagonal
        self._white[count] = row
        self._variance -= row * row
        self._count = count + 1

    def predict(self, targets: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and standard deviation over the pool, given the observations in the order of `extend`."""
        root = self._root[: self._count, : self._count]
        weights = solve_triangular(root, targets, lower=True, check_finite=False).astype(np.float32)
        return weights @ self._white[: self._count], np.sqrt(np.maximum(self._variance, 1e-9))

    def _parameters(self, theta: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
        values = np.exp(theta)
        return values[:-2][self._groups], float(values[-2]), float(values[-1]) + _JITTER

    def _covariance(self, scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        norms = (scaled**2).sum(axis=1)
        squared = norms[:, None] + self._pool_norms - 2 * (scaled @ self._pool.T)
        return np.asarray(np.float32(self._signal) * _matern(np.maximum(squared, 0)))

    def _loss(
        self, theta: NDArray[np.float64], features: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Minus the log posterior of the hyperparameters and its gradient."""
        weights, signal, noise = self._parameters(theta)
        scaled = features * np.sqrt(weights)
        squared = _squared_distances(scaled, scaled)
        kernel = signal * _matern(squared)
        noisy = kernel + noise * np.eye(len(targets))
        inverse = np.linalg.inv(noisy)
        alpha = inverse @ targets
        away = (theta - self._mean) / self._deviation
        loss = 0.5 * float(targets @ alpha) + 0.5 * float(np.linalg.slogdet(noisy)[1]) + 0.5 * float(away @ away)
        slope = 0.5 * (inverse - np.outer(alpha, alpha))
        by_distance = slope * (signal * _matern_slope(squared))
        by_feature = 2 * (by_distance.sum(axis=1) @ scaled**2) - 2 * ((by_distance @ scaled) * scaled).sum(axis=0)
        gradient = away / self._deviation
        np.add.at(gradient, self._groups, by_feature)
        gradient[-2] += (slope * kernel).sum()
        gradient[-1] += np.trace(slope) * (noise - _JITTER)
        return loss, gradient


def _squared_distances(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * (a @ b.T)
    return np.asarray(np.maximum(squared, 0.0))


def _matern(squared: NDArray[np.floating]) -> NDArray[np.floating]:
    """The Matérn 5/2 kernel of squared distances, in their precision."""
    distance = np.sqrt(squared) * _ROOT5
    return np.asarray((1 + distance + distance * distance / 3) * np.exp(-distance))


def _matern_slope(squared: NDArray[np.float64]) -> NDArray[np.float64]:
    """The derivative of `_matern` by the squared distance."""
    distance = np.sqrt(squared) * _ROOT5
    return np.asarray(-(5 / 6) * (1 + distance) * np.exp(-distance))


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


class Surrogate(Strategy):
    """Bayesian optimisation over the whole space.

    A prior chooses half of the first measurements, and its regression on log time is the mean of the process: a good
    model helps at once, a useless one gets no weight.
    """

    _bounded: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None

    def _outlook(self) -> Iterable[int]:
        """After the opening, the configurations with the lowest bounds, which the next result hardly changes."""
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
