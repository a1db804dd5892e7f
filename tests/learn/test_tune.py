"""Tuning drops the worse settings, and never replaces the default by a setting that is not better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckh.errors import DataError, UsageError
from ckh.learn.training.halving import SPACE, draw, fits, halve, survivors
from ckh.learn.training.train import train
from ckh.learn.training.tune import tune
from ckh.training import RankObjective, TrainOptions, TreeParams
from tests.learn.conftest import TREES, measured
from tests.refusals import expect_refusal

OPTIONS = TrainOptions(targets=("tflops",), rank=RankObjective.RELATIVE, folds=3, early_stopping=5, params=TREES)
FIXED = ("n_estimators", "learning_rate")


def test_settings_are_drawn_from_the_space() -> None:
    """The default comes first, all others differ, have values of the space and keep fixed parameters."""
    settings = draw(30, TREES, 7, FIXED)
    assert settings[0] == TREES
    assert len(set(settings)) == 30
    for setting in settings[1:]:
        assert all(getattr(setting, name) in values for name, values in SPACE.items() if name not in FIXED)
        assert (setting.n_estimators, setting.learning_rate) == (TREES.n_estimators, TREES.learning_rate)
        assert (setting.max_depth, setting.subsample_freq) == (TREES.max_depth, TREES.subsample_freq)
    assert draw(30, TREES, 7, FIXED) == settings
    assert draw(30, TREES, 8, FIXED) != settings


def test_a_space_may_be_smaller_than_asked_for() -> None:
    """With one free parameter of five values, none the default's, there are six settings."""
    result = draw(50, replace(TreeParams(), num_leaves=7), 0, [name for name in SPACE if name != "num_leaves"])
    assert sorted(setting.num_leaves for setting in result) == [7, 15, 31, 63, 127, 255]


@pytest.mark.parametrize(
    ("count", "folds", "expected"),
    [(20, 5, [20, 10, 5, 3, 2]), (2, 3, [2, 2, 2]), (9, 3, [9, 5, 3]), (1, 3, [1, 1, 1])],
)
def test_each_fold_halves_the_settings(count: int, folds: int, expected: list[int]) -> None:
    """The better half survives, rounded up, and never fewer than two."""
    assert list(survivors(count, folds)) == expected
    assert fits(count, folds) == sum(expected)


def test_the_worse_half_is_dropped() -> None:
    """By the mean over problems so far, not over folds; the default survives although it is the worst."""
    quality = [0.1, 0.5, 0.9, 0.7, 0.6, 0.2]
    asked = []

    def score(number: int, fold: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        asked.append((fold, number))
        # Setting 3 is perfect on the large second fold.
        return np.full((2, 6, 2)[fold], 1.0 if (number, fold) == (3, 1) else quality[number])

    trials, chosen = halve([replace(TREES, num_leaves=leaves) for leaves in range(2, 8)], 3, score)
    by_fold = [sorted(number for at, number in asked if at == fold) for fold in range(3)]
    assert by_fold == [[0, 1, 2, 3, 4, 5], [0, 2, 3], [0, 3]]
    assert chosen == 3
    assert [len(trial.folds) for trial in trials] == [3, 1, 2, 3, 1, 1]
    assert [trial.problems for trial in trials] == [10, 2, 8, 10, 2, 2]
    assert trials[3].mean_efficiency == pytest.approx((2 * 0.7 + 6 * 1.0 + 2 * 0.7) / 10)
    assert trials[3].folds == pytest.approx((0.7, 1.0, 0.7))


def test_only_a_better_setting_replaces_the_default() -> None:
    """A tie is not better."""
    settings = [replace(TREES, num_leaves=leaves) for leaves in (2, 3, 4)]
    assert halve(settings, 3, lambda _number, _fold: np.full(4, 0.5))[1] == 0
    assert halve(settings, 3, lambda number, _fold: np.full(4, 0.5 + 0.1 * (number == 2)))[1] == 2
    assert halve(settings, 3, lambda number, _fold: np.full(4, 0.5 - 0.1 * (number != 0)))[1] == 0


def test_settings_are_scored_as_training_scores_them() -> None:
    """The finalists have the held-out efficiency of cross-validation."""
    steps: list[int] = []
    tuning = tune(measured(), OPTIONS, 4, lambda step, _text: steps.append(step), FIXED)
    assert sum(steps) == fits(4, 3)
    finalists = [trial for trial in tuning.trials if len(trial.folds) == 3]
    assert len(finalists) == 2
    for trial in finalists:
        made = train(measured(), replace(OPTIONS, params=trial.params), lambda _step, _text: None).targets["rank"]
        assert trial.mean_efficiency == pytest.approx(made.oof_mean_efficiency, abs=1e-12)
        assert trial.folds == tuple(fold.mean_efficiency for fold in made.folds)
    best = max(finalists, key=lambda trial: (trial.mean_efficiency, -trial.number))
    assert (tuning.chosen, tuning.params) == (best.number, best.params)


def test_threads_change_no_choice() -> None:
    """With one thread or two, every setting has the same score."""
    short = replace(OPTIONS, params=replace(TREES, n_estimators=2))
    item, two = (tune(measured(), replace(short, jobs=jobs), 2, lambda _step, _text: None, FIXED) for jobs in (1, 2))
    assert item == two


def test_tuning_needs_folds() -> None:
    """Without folds, or enough problems for them, settings have no score."""
    with expect_refusal(UsageError, "missing-option", "tuned"):
        tune(measured(), replace(OPTIONS, folds=0), 3, lambda _step, _text: None)
    with expect_refusal(DataError, "few-problems", "tune"):
        tune(measured().select(measured().problem_ids < 2), OPTIONS, 3, lambda _step, _text: None)
