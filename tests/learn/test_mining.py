"""Mining gives hard problems more weight, and keeps the best round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckh.errors import DataError, UsageError
from ckh.learn.training.train import rounds, train
from ckh.learn.training.trained import Mined, MiningRound
from ckh.learn.training.validation import harder, mine, row_weights
from ckh.training import RankObjective, TrainOptions
from tests.learn.conftest import TREES, measured
from tests.refusals import expect_refusal

OPTIONS = TrainOptions(targets=("tflops",), rank=RankObjective.RELATIVE, folds=3, early_stopping=5, params=TREES)


def test_the_worst_fifth_weighs_twice_as_much() -> None:
    """Two of ten are at or below the quantile; weights never exceed five, and a perfect choice is not hard."""
    efficiency = np.array([0.9, 0.5, 0.95, 1.0, 0.6, 0.99, 0.97, 0.98, 0.96, 1.0])
    once = harder(np.ones(10), efficiency)
    assert once.tolist() == [1, 2, 1, 1, 2, 1, 1, 1, 1, 1]
    assert harder(harder(once, efficiency), efficiency).tolist() == [1, 5, 1, 1, 5, 1, 1, 1, 1, 1]
    assert harder(np.ones(4), np.ones(4)).tolist() == [1, 1, 1, 1]


def test_rows_have_the_weight_of_their_problem() -> None:
    """Four rows with weights 2, 2, 1, 3 are divided by their mean, 2."""
    assert row_weights(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0, 2])).tolist() == [1.0, 1.0, 0.5, 1.5]


def test_the_best_round_is_kept() -> None:
    """Weights accumulate from round to round; of tied rounds the first is kept."""
    answers = [np.array([0.5, 1, 1, 1, 1]), np.array([1, 0.8, 1, 1, 1]), np.array([0.8, 1, 1, 1, 1])]
    seen = []

    def efficiency_of(
        number: int, weight: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        seen.append(weight.tolist())
        return answers[number]

    mined = mine(2, 5, efficiency_of)
    assert seen == [[1, 1, 1, 1, 1], [2, 1, 1, 1, 1], [2, 2, 1, 1, 1]]
    assert mined.kept == 1
    assert [(mining_round.number, mining_round.raised) for mining_round in mined.rounds] == [(0, 0), (1, 1), (2, 2)]
    assert [mining_round.mean_efficiency for mining_round in mined.rounds] == pytest.approx([0.9, 0.96, 0.96])
    assert mined.rounds[1].p10_efficiency == pytest.approx(0.8 + 0.4 * 0.2)


def test_mining_ends_without_hard_problems() -> None:
    """A round without a wrong choice changes no weights, so it is the last."""
    mined = mine(5, 3, lambda _number, _weight: np.ones(3))
    assert mined == Mined((MiningRound(0, 0, 1.0, 1.0),), 0)


def test_the_kept_round_is_the_model() -> None:
    """Held-out efficiency is that of the kept round; other targets and a kept first round are as without mining."""
    steps: list[int] = []
    mining = replace(OPTIONS, mine=2)
    mined = train(measured(), mining, lambda step, _text: steps.append(step))
    plain = train(measured(), OPTIONS, lambda _step, _text: None)
    made = mined.targets["rank"].mined
    assert made is not None
    assert mined.targets["rank"].oof_mean_efficiency == made.rounds[made.kept].mean_efficiency
    assert mined.targets["rank"].oof_p10_efficiency == made.rounds[made.kept].p10_efficiency
    assert made.rounds[0].mean_efficiency == plain.targets["rank"].oof_mean_efficiency
    assert mined.targets["tflops"] == plain.targets["tflops"]
    assert (mined.targets["rank"].text == plain.targets["rank"].text) == (made.kept == 0)
    assert sum(steps) == rounds(mining)


def test_mining_needs_folds() -> None:
    """Without folds, or enough problems for them, hard problems are unknown."""
    with expect_refusal(UsageError, "missing-option", "mined"):
        train(measured(), replace(OPTIONS, mine=1, folds=0), lambda _step, _text: None)
    few = measured().select(measured().problem_ids < 2)
    with expect_refusal(DataError, "few-problems", "mine"):
        train(few, replace(OPTIONS, mine=1), lambda _step, _text: None)
