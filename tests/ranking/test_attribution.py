"""Shares of a difference of scores are Shapley values, by brute force over all subsets of features."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import lightgbm
import numpy as np
import pytest

from ckh.ranking.attribution import difference_by_feature
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import pack

FEATURES = 6


def booster(seed: int) -> lightgbm.Booster:
    """Twenty trees of 600 rows; the last feature is categorical and the second has missing values."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(600, FEATURES))
    inputs[:, -1] = random.integers(0, 8, 600)
    inputs[random.random(600) < 0.1, 1] = np.nan
    label = inputs[:, 0] * np.nan_to_num(inputs[:, 1]) + (inputs[:, -1] % 3) * inputs[:, 2] + inputs[:, 3] ** 2
    data = lightgbm.Dataset(inputs, label, categorical_feature=[FEATURES - 1], params={"verbose": -1})
    return lightgbm.train({"num_leaves": 12, "verbose": -1, "num_threads": 1, "seed": seed}, data, 20)


def brute_force(model: lightgbm.Booster, first: np.ndarray, second: np.ndarray) -> list[float]:
    """The weighted marginal contribution of a feature over all subsets of the others."""

    def value(chosen: set[int]) -> float:
        row = [first[i] if i in chosen else second[i] for i in range(FEATURES)]
        return float(model.predict(np.array([row]))[0])

    shares = []
    for feature in range(FEATURES):
        others = [i for i in range(FEATURES) if i != feature]
        total = 0.0
        for size in range(FEATURES):
            weight = factorial(size) * factorial(FEATURES - size - 1) / factorial(FEATURES)
            for some in combinations(others, size):
                total += weight * (value({*some, feature}) - value(set(some)))
        shares.append(total)
    return shares


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shares_are_shapley_values(seed: int) -> None:
    """Each feature's share equals the sum over all subsets, predicted by LightGBM; they add up to the difference."""
    model = booster(seed)
    forest = pack(parse_forest(model.model_to_string()))
    random = np.random.default_rng(seed + 10)
    rows = random.normal(size=(2, FEATURES))
    rows[:, -1] = random.integers(0, 8, 2)
    rows[1, 1] = np.nan
    result = difference_by_feature(forest, *rows)
    assert result.tolist() == pytest.approx(brute_force(model, *rows), abs=1e-9)
    first, second = model.predict(rows)
    assert result.sum() == pytest.approx(first - second, abs=1e-9)


def test_equal_features_have_no_share() -> None:
    """Features with the same value in both rows add nothing, and equal rows differ by nothing."""
    forest = pack(parse_forest(booster(0).model_to_string()))
    row = np.array([0.3, -1.0, 0.5, 1.0, 0.0, 3.0])
    assert not difference_by_feature(forest, row, row).any()
    other = np.array([0.3, 1.0, 0.5, -2.0, 0.0, 3.0])
    assert np.flatnonzero(difference_by_feature(forest, row, other)).tolist() == [1, 3]
