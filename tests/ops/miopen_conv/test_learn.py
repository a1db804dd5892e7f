"""Training on synthetic data in which one solver is best for large channels and another for small ones."""

from __future__ import annotations

from dataclasses import replace

import lightgbm
import numpy as np
import pandas as pd
import pytest

from benchmarks.miopen_learn import (
    FOLDS,
    efficiency_of,
    held_out,
    matrix_of,
    predict,
    times_of,
    train_order,
    train_regression,
)
from ckh.errors import ModelError
from ckh.learn.models.model_text import join_trees, shorten, slim
from ckh.learn.training.targets import blended
from ckh.ops.miopen_conv.readers.fdb import FdbDevice
from ckh.ops.miopen_conv.readers.solver_table import SIZES, SolverTable, from_frame
from ckh.ops.miopen_conv.recipe import RECIPE, SMALL_RECIPE
from ckh.ranking.evaluator import scores_by_numpy as packed_scores
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import pack
from tests.refusals import expect_refusal

_SMALL = replace(RECIPE.params, n_estimators=8, num_leaves=7, min_child_samples=5)
TINY = replace(RECIPE, params=_SMALL, regression=replace(_SMALL, n_estimators=12))
_CROSSING = 64


@pytest.fixture(scope="module")
def world() -> SolverTable:
    """160 problems of 80 sizes in two directions; Winograd wins from 64 channels on, by a factor of two."""
    steps = {f"{what}_{axis}": int(what != "pad") for what in ("stride", "pad", "dilation") for axis in "dhw"}
    rows = []
    for c in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256):
        for hi in (7, 10, 14, 20, 28, 40, 56, 80):
            for direction in "FW":
                sizes = {"N": 1, "C": c, "K": 32, "G": 1, "Di": 1, "Hi": hi, "Wi": hi, "Z": 1, "Y": 3, "X": 3}
                same = {**sizes, **steps, "dtype": "FP32", "layout": "NCHW", "ndim": 2, "direction": direction}
                fast, slow = ("ConvBinWinogradRxSf3x2", "GemmFwdRest")[:: 1 if c >= _CROSSING else -1]
                rows += [{**same, "solver": fast, "time_ms": 1.0}, {**same, "solver": slow, "time_ms": 2.0}]
    return from_frame(pd.DataFrame(rows), FdbDevice("gfx90a", 104))


def test_the_deciding_feature_is_learned(world: SolverTable) -> None:
    """Held-out sizes always get the best solver; the better of the two alone would be right for half of them."""
    is_held = held_out(world)
    asked = world.select(is_held)
    efficiency = efficiency_of(asked, predict(train_order(world.select(~is_held), TINY), asked))
    assert efficiency.tolist() == [1.0] * 32
    assert efficiency_of(asked, -predict(train_order(world.select(~is_held), TINY), asked)).mean() == 0.5


def test_held_out_sizes_are_held_out_in_all_directions(world: SolverTable) -> None:
    """A fifth of the sizes is held out, and none of them occurs in the training data."""
    is_held = held_out(world)
    sizes = world.frame[list(SIZES)].apply(tuple, axis=1)
    assert not set(sizes[is_held]) & set(sizes[~is_held])
    assert len(set(sizes[is_held])) == 16
    assert set(world.frame.loc[is_held, "variant"]) == {"forward", "bwd_weight"}
    folds = [held_out(world, fold) for fold in range(FOLDS)]
    assert (np.sum(folds, axis=0) == 1).all()


def test_efficiency_is_computed_from_the_chosen_rows(world: SolverTable) -> None:
    """Scores that choose the slow solver give 1 / 2, negative times as scores give 1."""
    times = times_of(world).latency_ms
    assert efficiency_of(world, -times).tolist() == [1.0] * 160
    assert efficiency_of(world, times).tolist() == [0.5] * 160


def test_the_same_data_and_seed_give_the_same_bytes(world: SolverTable) -> None:
    """Two trainings are equal; another seed gives another model; progress is reported by round."""
    passed: list[int] = []
    text = train_order(world, TINY, advance=passed.append)
    assert passed == [1] * 8
    assert train_order(world, TINY) == text
    assert train_order(world, replace(TINY, seed=7)) != text


def test_a_blend_is_a_sum(world: SolverTable) -> None:
    """Raw scores are the LambdaRanks' plus 8 times the regression's; the trees are the union of both."""
    joined, (item, two), regression = _blend(world)
    assert joined.count("Tree=") == 8 + 8 + 12
    expected = predict(item, world) + predict(two, world) + 16 * predict(regression, world)
    np.testing.assert_allclose(predict(joined, world), expected, rtol=1e-12)


def _blend(world: SolverTable) -> tuple[str, list[str], str]:
    ranks = [train_order(world, replace(TINY, seed=seed)) for seed in (1, 2)]
    regression = train_regression(world, TINY)
    return blended(ranks, regression), ranks, regression


def test_the_regression_is_of_relative_time(world: SolverTable) -> None:
    """For two solvers, one twice as slow, targets are 0 and log(1 / 2), with weights 1 and 1 / 2."""
    params = replace(TINY.params, n_estimators=200, num_leaves=31, min_child_samples=1, reg_lambda=0.0, subsample=1.0)
    scores = predict(train_regression(world, replace(TINY, regression=replace(params, colsample_bytree=1.0))), world)
    is_fast = world.frame["latency_ms"].to_numpy() == 1
    np.testing.assert_allclose(scores[is_fast], 0, atol=0.01)
    np.testing.assert_allclose(scores[~is_fast], np.log(0.5), atol=0.01)
    stump = replace(params, n_estimators=1, num_leaves=2, learning_rate=1e-9)
    average = predict(train_regression(world, replace(TINY, regression=stump)), world)
    in_four_digits = float(f"{np.log(0.5) / 3:.4g}")
    np.testing.assert_allclose(average, in_four_digits, rtol=1e-6)


def test_a_base_model_is_corrected(world: SolverTable) -> None:
    """Trees trained on the scores of an always wrong model correct it."""
    wrong = SolverTable(world.frame.assign(latency_ms=3.0 - world.frame["latency_ms"]), world.device, 0, {})
    base = train_order(wrong, TINY)
    assert efficiency_of(world, predict(base, world)).tolist() == [0.5] * 160
    long = replace(TINY, params=replace(TINY.params, n_estimators=60))
    mended = train_order(world, long, base=base)
    assert efficiency_of(world, predict(mended, world)).mean() == 1.0


@pytest.mark.slow
def test_a_slim_text_predicts_the_same(world: SolverTable) -> None:
    """Less than 70 % of LightGBM's text gives equal scores in LightGBM, and in ckh's forest."""
    booster = lightgbm.train({"verbose": -1, "min_data_in_leaf": 5}, _data(world), 20)
    matrix, text = matrix_of(world), booster.model_to_string()
    short = slim(text)
    expected = booster.predict(matrix)
    assert len(short) < 0.7 * len(text)
    np.testing.assert_array_equal(lightgbm.Booster(model_str=short).predict(matrix), expected)
    np.testing.assert_allclose(packed_scores(pack(parse_forest(short)), matrix), expected, rtol=1e-12)


def test_a_short_text_keeps_four_digits_of_leaves_and_seven_of_thresholds() -> None:
    """Numbers are rounded as by hand, halves of integers are kept, and other lines are unchanged."""
    text = "threshold=2.5000000000000004 123456.50000000001 1.0000000180025095e-35\nleaf_value=0.0123456789 -2 12345\n"
    rounded = "threshold=2.5 123456.5 1e-35\nleaf_value=0.01235 -2 1.234e+04\n"
    other = "decision_type=2 2\nleft_child=1000001 -1\n"
    assert shorten(text + other) == rounded + other
    assert shorten(rounded) == rounded


def test_a_short_text_scores_almost_the_same(world: SolverTable) -> None:
    """Scores differ by at most half a unit of a leaf's fourth digit per tree, and splits are unchanged."""
    booster = lightgbm.train({"verbose": -1, "min_data_in_leaf": 5}, _data(world), 20)
    matrix, text = matrix_of(world), slim(booster.model_to_string())
    short = lightgbm.Booster(model_str=shorten(text))
    leaves = booster.predict(matrix, pred_leaf=True)
    values = np.array([[abs(booster.get_leaf_output(t, leaf)) for t, leaf in enumerate(row)] for row in leaves])
    difference = np.abs(np.asarray(short.predict(matrix)) - np.asarray(booster.predict(matrix)))
    np.testing.assert_array_equal(short.predict(matrix, pred_leaf=True), leaves)
    assert (difference <= 0.0005001 * values.sum(axis=1)).all()
    assert difference.max() > 0
    assert len(shorten(text)) < 0.8 * len(text)


def test_the_packed_forest_reads_joined_models(world: SolverTable) -> None:
    """A blend with categories has the same scores in ckh's forest as in LightGBM."""
    joined, _, _ = _blend(world)
    packed = packed_scores(pack(parse_forest(joined)), matrix_of(world))
    np.testing.assert_allclose(packed, predict(joined, world), rtol=1e-12)


def _data(world: SolverTable) -> lightgbm.Dataset:
    return lightgbm.Dataset(matrix_of(world), times_of(world).latency_ms)


def test_mismatching_models_are_not_joined(world: SolverTable) -> None:
    """Models with different inputs, and texts without trees, are refused."""
    other = lightgbm.train({"verbose": -1, "min_data_in_leaf": 5}, _data(world), 2).model_to_string()
    with expect_refusal(ModelError, "model-inputs"):
        join_trees([train_order(world, TINY), other])
    for text in ("", "tree\n", "Tree=0\nend of trees\n", "feature_names=a\nTree=0\n"):
        with expect_refusal(ModelError, "damaged-model"):
            join_trees([text])


def test_recipes_rank_and_predict_speeds() -> None:
    """Both recipes are blends with a speed model of fewer leaves; the small recipe has smaller trees."""
    for recipe in (RECIPE, SMALL_RECIPE):
        assert (recipe.targets, str(recipe.rank)) == (("tflops",), "blend")
        assert recipe.speeds is not None
        assert recipe.speeds.num_leaves <= 127
    assert SMALL_RECIPE.params.num_leaves < RECIPE.params.num_leaves
