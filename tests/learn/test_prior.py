"""The time model: fitted to measurements, applied to other sizes, and combined with the ranking model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import lightgbm
import numpy as np
import pytest

from ckh.assess.times import times_of
from ckh.errors import UsageError
from ckh.learn.analytic import prior
from ckh.learn.analytic.prior import PRIOR_TREES, PriorRows, _coefficients, _LawRows, has_prior, prior_rows
from ckh.learn.training.boosting import Boosting, fit_rounds, make_fit
from ckh.learn.training.feature_matrix import FeatureMatrix
from ckh.learn.training.prepared import prepare
from ckh.learn.training.train import train
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.training import RANK, RankObjective, TrainOptions, sized_options
from tests.learn.conftest import TREES, build, kernels
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.ops.grouped_conv.kernel import ConvKernel

OPTIONS = TrainOptions(targets=(), rank=RankObjective.EFFICIENCY, folds=0, prior=0.5, params=TREES)
COSTS = ((0.001, 2e-6), (0.003, 1e-6), (0.002, 4e-6))  # per kernel: start-up time, time of a wave's iteration, ms


@cache
def lawful() -> Dataset:
    """Three kernels on forty problems, with times that follow exactly two terms of the time model."""
    drawn = np.random.default_rng(0)
    where = [
        ConvProblem(Direction.FORWARD, int(n), int(c), int(k), 1, int(hi), int(hi), 3, 3, pad_h=1, pad_w=1)
        for n, c, k, hi in zip(
            drawn.integers(1, 9, 40),
            drawn.integers(1, 40, 40) * 8,
            drawn.integers(1, 40, 40) * 8,
            drawn.integers(7, 60, 40),
            strict=True,
        )
    ]
    return build([(p, k, law_ms(p, k, number)) for p in where for number, k in enumerate(kernels()[:3])])


def law_ms(problem: ConvProblem, kernel: ConvKernel, number: int) -> float:
    """The time by the formula, on the three compute units of the fictitious machine."""
    m, n, k = problem.gemm_sizes
    tiles = -(-m // kernel.tile_m) * -(-n // kernel.tile_n)
    start, trip = COSTS[number]
    return start + trip * -(-tiles // 3) * -(-k // kernel.tile_k)


def efficiencies() -> NDArray[np.float64]:
    """Efficiencies of all rows of the synthetic dataset."""
    return np.asarray(times_of(lawful()).efficiency())


def known_of(data: Dataset, rows: NDArray[np.int64], efficiency: NDArray[np.float64]) -> PriorRows:
    """The prior of rows."""
    result = prior_rows(data, rows, efficiency, 1)
    assert result is not None
    return result


def test_a_valid_time_model_is_recovered() -> None:
    """For times that follow the model exactly, all measured efficiencies are recovered, despite an outlier."""
    frame = lawful().frame.copy()
    frame.loc[7, "latency_ms"] *= 30
    spoiled = replace(lawful(), frame=frame)
    result = known_of(spoiled, np.arange(len(frame)), times_of(spoiled).efficiency())
    of_measured = result.efficiency[: len(frame)].reshape(-1, 3)
    truth = efficiencies().reshape(-1, 3)
    assert np.sort(of_measured, axis=1) == pytest.approx(np.sort(truth, axis=1), abs=0.02)


def test_unmeasured_terms_come_from_the_family() -> None:
    """A term absent from a kernel's rows is taken from the tiles of its own family."""
    random, tiles = np.random.default_rng(5), np.array([1.0, 2.0, 3.0, 4.0, 2.0, 5.0])
    families = np.array(["one"] * 4 + ["other"] * 2)
    truth = np.column_stack([0.5 + tiles, np.where(families == "one", 1 + 2 * tiles, 0.1)])
    kernel = np.repeat(np.arange(6), 40)
    terms = random.uniform(1, 9, (240, 2))
    terms[kernel == 2, 1] = 0
    latency = (terms * truth[kernel]).sum(axis=1)
    shared = np.column_stack([np.ones(6), tiles])
    result = _coefficients(_LawRows(terms, latency, np.ones(240)), kernel, shared, families)
    assert result == pytest.approx(truth, rel=1e-3)


@pytest.mark.parametrize("octaves", [1.0, 4.0])
def test_drawn_problems_are_valid(octaves: float) -> None:
    """Sizes drawn around measured problems are positive integers of valid problems, within the range."""
    law, frame = lawful().op.training.law, lawful().frame
    assert law is not None
    columns = {name: frame[name].to_numpy() for name in lawful().op.problems.sizes}
    drawn = law.varied(columns, octaves, np.random.default_rng(3))
    assert {name for name in columns if (drawn[name] != columns[name]).any()} == {"N", "C", "K", "Hi", "Wi"}
    apart = np.abs(np.log2(drawn["Hi"] / columns["Hi"])).max()
    assert octaves - 1 < apart <= octaves + 0.1  # they are whole
    for row in frame.assign(**drawn).to_dict("records"):
        assert 1 <= row["N"] <= 64
        assert lawful().op.problems.of_row(row).flops > 0


def test_few_problems_get_more_drawn_problems() -> None:
    """Trees learn the time model of six measured problems from three hundred, and of forty from nine times as many."""
    efficiency, rows = efficiencies(), np.arange(len(lawful().frame))
    assert len(known_of(lawful(), rows[: 6 * 3], efficiency).efficiency) == (300 + 6) * 3
    assert len(known_of(lawful(), rows, efficiency).efficiency) == 9 * 40 * 3


def test_few_measurements_have_no_prior() -> None:
    """Six problems with three rows per kernel on average are enough for a valid time model, fewer are not."""
    rows = np.arange(len(lawful().frame))
    assert has_prior(lawful(), rows)
    assert has_prior(lawful(), rows[: 3 * 6])
    assert not has_prior(lawful(), rows[: 3 * 5])
    assert not has_prior(lawful(), np.array([0, 4, 8, 9, 13, 17, 18, 22]))


def test_few_problems_use_leave_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time model of twelve problems is validated leaving one out, that of more in three parts."""
    folds: list[int] = []
    unseen_error = prior._unseen_error

    def counted(law: prior._Law, fold: NDArray[np.int64]) -> float:
        folds.append(len(np.unique(fold)))
        return unseen_error(law, fold)

    monkeypatch.setattr(prior, "_unseen_error", counted)
    assert [has_prior(lawful(), np.arange(3 * count)) for count in (6, 12, 13)] == [True] * 3
    assert folds == [6, 12, 3]


def test_an_invalid_time_model_is_not_a_prior() -> None:
    """For times that the model does not explain, such as a CPU's, there is no prior, however many were measured."""
    frame = lawful().frame.copy()
    frame["latency_ms"] = np.random.default_rng(0).permutation(frame["latency_ms"].to_numpy())
    assert not has_prior(replace(lawful(), frame=frame), np.arange(len(frame)))


@pytest.mark.slow
def test_the_model_is_the_mean_of_trees_and_prior() -> None:
    """Scores with a prior are the weighted mean of the model without it and of the prior's trees."""
    data = lawful()
    quiet = lambda _steps, _text: None  # noqa: E731
    with_prior = train(data, OPTIONS, quiet).targets["rank"]
    without = train(data, replace(OPTIONS, prior=0.0), quiet).targets["rank"]
    assert with_prior.trees == without.trees + 200
    columns = {name: data.frame[name].to_numpy() for name in data.op.training.input_columns}
    matrix = FeatureMatrix(data.op.training.engine, columns, data.hardware())
    score, own = (matrix.predict(lightgbm.Booster(model_str=item.text)) for item in (with_prior, without))
    law = 3.0 * score - 2.0 * own  # weights 1 and 0.5
    assert law == pytest.approx(efficiencies(), abs=0.1)
    assert float(np.abs(law - own).max()) > 0.1
    again = train(data, OPTIONS, quiet).targets["rank"]
    assert again.text == with_prior.text


@pytest.mark.slow
def test_out_of_fold_scores_include_the_prior() -> None:
    """Out-of-fold predictions equal those of a model of the same rows, up to its text's rounding; each tree counts."""
    data, options = lawful(), OPTIONS
    steps: list[int] = []
    boosting = Boosting(prepare(data, options), options, lambda count, _text: steps.append(count))
    fit, rows = make_fit(RANK, data, options.rank), np.arange(len(data))
    result = boosting.predicted(fit, boosting.fit(fit, rows, None, ""), rows, rows)
    text = train(data, options, lambda _steps, _text: None).targets["rank"].text
    assert result == pytest.approx(
        lightgbm.Booster(model_str=text).predict(boosting.prepared.matrix.take(rows)), abs=0.01
    )
    assert sum(steps) == len(steps) - 1 == fit_rounds(options, RANK) > PRIOR_TREES.n_estimators


@pytest.mark.slow
def test_held_out_choices_use_the_time_model() -> None:
    """Models with the time model choose nearly the best for problems of other folds, unlike trees alone."""
    with_prior, without = (
        train(lawful(), replace(OPTIONS, prior=prior, folds=3), lambda _steps, _text: None).targets["rank"]
        for prior in (10.0, 0.0)
    )
    assert with_prior.oof_mean_efficiency is not None
    assert without.oof_mean_efficiency is not None
    assert with_prior.oof_mean_efficiency > max(0.99, without.oof_mean_efficiency + 0.01)


def test_a_prior_needs_a_model_of_efficiency() -> None:
    """LambdaRank's scores have no scale to which a time model could be added."""
    with expect_refusal(UsageError, "conflicting-options", "prior"):
        train(lawful(), replace(OPTIONS, rank=RankObjective.LAMBDARANK), lambda _steps, _text: None)


def test_defaults_grow_with_the_rows() -> None:
    """Few rows get small trees and a prior, many rows large trees and no prior."""
    few, some, many = (sized_options(rows) for rows in (3_700, 26_000, 190_000))
    assert [train_options.params.num_leaves for train_options in (few, some, many)] == [31, 63, 255]
    assert [item.prior for item in (few, some, many)] == [1.0, 0.0, 0.0]
