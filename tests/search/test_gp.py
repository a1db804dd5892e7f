"""The Gaussian process against textbook formulas and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from ckh.search.gaussian_process import Features, GaussianProcess


@pytest.fixture
def features() -> Features:
    """Sixty random configurations with four features, two of which share a scale."""
    matrix = np.random.default_rng(0).random((60, 4))
    return Features(matrix, np.array([0, 1, 1, 2]))


def _targets(features: Features) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.sin(4 * features.matrix[:, 0]) + features.matrix[:, 1] * features.matrix[:, 2]
    return np.asarray((values - values.mean()) / values.std())


def test_predictions_equal_scikit_learn(features: Features) -> None:
    """Fitted and added observations give scikit-learn's mean and deviation."""
    process = GaussianProcess(features)
    targets = _targets(features)
    process.optimise(np.arange(20), targets[:20], 30)
    process.condition(np.arange(20), np.arange(60))
    for position in range(20, 40):
        process.extend(position)
    mean, deviation = process.predict(targets[:40])
    *weights, signal, noise = np.exp(process._theta)
    scales = 1 / np.sqrt(np.array(weights)[features.groups])
    kernel = ConstantKernel(signal) * Matern(scales, nu=2.5) + WhiteKernel(noise + 1e-5)
    reference = GaussianProcessRegressor(kernel, optimizer=None, alpha=0).fit(features.matrix[:40], targets[:40])
    noisy_mean, noisy_deviation = reference.predict(features.matrix, return_std=True)
    assert np.allclose(mean, noisy_mean, atol=2e-3)
    assert np.allclose(deviation**2 + noise + 1e-5, noisy_deviation**2, atol=2e-3)


def test_the_gradient_is_that_of_the_loss(features: Features) -> None:
    """The gradient of the hyperparameters equals central differences."""
    process = GaussianProcess(features)
    targets = _targets(features)[:25]
    theta = np.array([0.3, -0.5, 0.8, 0.2, -4.0])
    _, gradient = process._loss(theta, features.matrix[:25], targets)
    for i, step in enumerate(np.eye(5) * 1e-5):
        above, _ = process._loss(theta + step, features.matrix[:25], targets)
        below, _ = process._loss(theta - step, features.matrix[:25], targets)
        assert np.isclose(gradient[i], (above - below) / 2e-5, rtol=1e-4, atol=1e-6)


def test_a_full_model_reports_it(features: Features) -> None:
    """After its capacity of additions the model must be conditioned anew."""
    process = GaussianProcess(features)
    process.condition(np.arange(1), np.arange(60))
    for position in range(1, 60):
        assert not process.is_full
        process.extend(position)
