"""Forests in NumPy give LightGBM's scores."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

from ckh.errors import ModelError
from ckh.ranking.evaluator import scores_by_numpy as scores
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import pack


def _train(seed: int, **params: object) -> tuple[lightgbm.Booster, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(800, 6))
    x[:, 2] = random.integers(0, 70, 800)
    x[:, 3] = np.where(random.random(800) < 0.3, np.nan, x[:, 3])
    x[:, 4] = np.where(random.random(800) < 0.5, 0.0, x[:, 4])
    y = x[:, 0] + np.sin(x[:, 2]) * 3 + np.nan_to_num(x[:, 3]) * x[:, 4]
    data = lightgbm.Dataset(x, y, categorical_feature=[2], params={"verbose": -1, "max_cat_to_onehot": 2})
    settings = {"objective": "regression", "verbose": -1, "num_leaves": 15, "min_data_per_group": 5, "cat_smooth": 1}
    booster = lightgbm.train(settings | params, data, num_boost_round=40)
    probe = random.normal(size=(500, 6)) * 2
    probe[:, 2] = random.integers(-3, 90, 500)
    probe[random.random(probe.shape) < 0.1] = np.nan
    probe[random.random(probe.shape) < 0.1] = 0.0
    probe[random.random(probe.shape) < 0.02] = np.inf
    probe[:, 2] = np.where(np.isinf(probe[:, 2]), 1.0, probe[:, 2])
    return booster, probe


@pytest.mark.parametrize("params", [{}, {"zero_as_missing": True}, {"use_missing": False}, {"objective": "huber"}])
@pytest.mark.parametrize("seed", [0, 1])
def test_scores_equal_lightgbm(seed: int, params: dict[str, object]) -> None:
    """Numerical, categorical and missing values take the same branches as in LightGBM."""
    booster, probe = _train(seed, **params)
    ours = scores(pack(parse_forest(booster.model_to_string())), probe)
    np.testing.assert_allclose(ours, booster.predict(probe), rtol=1e-12, atol=1e-13)


def test_a_tree_of_one_leaf_is_a_constant() -> None:
    """A model without splits predicts one value everywhere."""
    data = lightgbm.Dataset(np.zeros((50, 2)), np.full(50, 3.5), params={"verbose": -1})
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, data, num_boost_round=3)
    forest = pack(parse_forest(booster.model_to_string()))
    np.testing.assert_allclose(scores(forest, np.ones((4, 2))), booster.predict(np.ones((4, 2))), rtol=1e-12)


@pytest.mark.parametrize(
    ("params", "word"),
    [({"objective": "poisson"}, "poisson"), ({"reg_sqrt": True}, "sqrt"), ({"linear_tree": True}, "linear")],
)
def test_models_with_transformed_output_are_refused(params: dict[str, object], word: str) -> None:
    """Link functions and linear trees are refused by name."""
    random = np.random.default_rng(0)
    data = lightgbm.Dataset(random.random((300, 3)), random.random(300), params={"verbose": -1, **params})
    booster = lightgbm.train({"objective": "regression", "verbose": -1, **params}, data, num_boost_round=2)
    with pytest.raises(ModelError, match=word):
        parse_forest(booster.model_to_string())


def test_damaged_text_is_refused() -> None:
    """A truncated model, or a child or feature out of range, is an error and not a wrong answer."""
    text = _train(0)[0].model_to_string()
    for damaged in ("", "hello", text[: len(text) // 2], text.replace("left_child=", "left_child=99999 ", 1)):
        with pytest.raises(ModelError):
            parse_forest(damaged)
