"""Gaussian process of log time over a fixed pool of configurations, designed for adding single observations.

It has a Matérn 5/2 kernel with a weight (an inverse squared length scale) for each group of features; the
hyperparameters are the mode of their posterior under wide log-normal priors. Adding an observation adds one row to the
whitened covariance between observations and pool, O(observations x pool), in single precision; see Rasmussen &
Williams, Gaussian Processes for Machine Learning (2006), algorithm 2.1 and section 5.4.1.

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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.search.space import Parameter, Space

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
        optimum = minimize(
            self._loss,
            self._theta,
            args=(self._matrix[rows], targets),
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds,
            options={"maxiter": iterations},
        )
        self._theta = np.asarray(optimum.x)

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
