"""The analytic estimate corrected by measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from ckh.api.ranker import KernelRanker
from ckh.archs import load_arch
from ckh.assess.times import efficiency_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.errors import UsageError
from ckh.learn.analytic.corrected import (
    OF_EFFICIENCY,
    complete_kernels,
    correction,
    estimated_logs,
    row_scores,
    weight_of,
)
from ckh.learn.analytic.estimate import estimated_us
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import Model, load_model, wanted_for
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.learn.training.warm_start import continued, read_start
from ckh.ops.grouped_conv.kernel import amd_short_name
from ckh.ops.grouped_conv.requested import has_few_channels
from ckh.training import TrainOptions
from tests.export.conftest import HERE, ask, compile_program, export, line_of
from tests.learn.conftest import AMD_KERNELS, measured
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

KERNEL = {amd_short_name(item): item for item in reversed(AMD_KERNELS)}
SECOND = "compv4"
HARNESS = HERE / "harness.c"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without kernels compiled on this machine, whose registers the estimate would use."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))


@cache
def amd() -> Dataset:
    """Twenty kernels on 158 problems, as measured by AMD; names do not determine waves and instructions."""
    return read_dataset(Path(__file__).parents[2] / "data" / "amd-gfx950-conv-20kernels.parquet").valid()


def estimated_of(problem: ConvProblem, kernels: Sequence[ConvKernel]) -> NDArray[np.float64]:
    """Estimated times of kernels on the GPU that AMD measured."""
    tiled = amd().op.problems.tiled
    assert tiled is not None
    return estimated_us(problem, tiled(problem), kernels, load_arch("gfx950"))


@cache
def estimates() -> NDArray[np.float64]:
    """Estimated times of all rows of the dataset, computed individually."""
    rows = zip(amd().problem_ids, amd().frame["kernel"], strict=True)
    result = np.array([estimated_of(amd().problems()[number], [KERNEL[name]])[0] for number, name in rows])
    result.flags.writeable = False
    return result


def slower(factor: float) -> Dataset:
    """The dataset with estimated times, in which one pipeline takes longer by a factor."""
    data = amd()
    is_second = np.array([KERNEL[name].pipeline == SECOND for name in data.frame["kernel"]])
    return Dataset(data.frame.assign(latency_ms=estimates() / 1000 * np.where(is_second, factor, 1.0)))


@pytest.mark.slow
def test_corrections_are_of_log_estimated_over_measured_times() -> None:
    """Bounded around the median, with less weight for kernels estimated far from the best of a problem."""
    data = slower(3.0)
    label, weight = correction(data, np.log(estimates()))
    is_second = np.array([KERNEL[name].pipeline == SECOND for name in data.frame["kernel"]])
    assert label.max() - label.min() == pytest.approx(min(log(3.0), 2.0))
    assert (label[is_second] < label[~is_second].min()).all()
    first = data.problem_ids == 7
    gap = np.log(estimates()[first] / estimates()[first].min())
    assert weight[first] == pytest.approx(np.maximum(np.exp(-2 * gap), 0.02))


def test_the_weight_is_the_one_that_chooses_best() -> None:
    """Of a hundred problems of two kernels, whose estimates differ by a tenth; none from nine problems."""
    problem, slow = np.repeat(np.arange(100), 2), np.tile([0.9, 1.0], 100)
    estimated = np.tile([0.0, 0.1], 100)  # the first, which is slower, is estimated faster
    for needed, weight in ((-0.6, 0.2), (-0.4, 0.3), (-0.2, 0.0), (0.5, 0.0)):
        corrected = np.tile([needed, 0.0], 100)
        assert weight_of(estimated, corrected, slow, problem) == weight
    assert weight_of(estimated[:18], np.tile([-0.6, 0.0], 9), slow[:18], problem[:18]) == 0.0
    assert weight_of(estimated, np.tile([-0.6, 0.0], 100), slow, np.arange(200)) == 0.0  # one kernel each


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [5, 50, 400])
def test_measurements_as_estimated_change_nothing(pairs: int, tmp_path: Path) -> None:
    """Times proportional to the estimates have no correction, with any number of rows."""
    assert correction_of(trained_on(slower(1.0), pairs, tmp_path / "model")) == 0.0


def correction_of(folder: Path) -> float:
    """Weight of a model's corrections, as its manifest states it."""
    return float(json.loads((folder / "train_manifest.json").read_text(encoding="utf-8"))["ckh"]["correction"])


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 2,000 pairs of a pipeline that is faster than estimated."""
    return trained_on(slower(1 / 1.6), 2000, tmp_path_factory.mktemp("few") / "model")


def trained_on(data: Dataset, pairs: int, folder: Path, seed: int = 0) -> Path:
    """A model of random pairs."""
    from benchmarks.estimate_prior import options_of, random_pairs

    rows = random_pairs(data, pairs, seed)
    save(train(rows, options_of(rows, 1.0), lambda *_: None), folder)
    return folder


def test_the_score_is_the_estimate_and_the_trees(few: Path) -> None:
    """For all kernels that it ranks, in C, NumPy and for rows of a dataset."""
    model = load_model(few)
    assert model.spec.estimate
    trees = Model(model.path, replace(model.spec, estimate=False))
    assert np.ptp(trees.predict_dataset(amd(), "rank")) > 0.05
    for problem in amd().problems()[:3]:
        pool: Any = ranking_of(problem, model).pool
        expected = -np.log(estimated_of(problem, pool)) + trees.predict(problem, pool, "rank")
        assert model.score_pool([problem], pool)[0][0] == pytest.approx(expected, rel=1e-12)
        assert model.predict(problem, pool, "rank") == pytest.approx(expected, rel=1e-12)
    expected = trees.predict_dataset(amd(), "rank") - np.log(estimates())
    assert model.scores(amd()) == pytest.approx(expected, rel=1e-12)


def test_measurements_choose_better(few: Path) -> None:
    """A pipeline that is 1.6 times faster than estimated is chosen, by trees of efficiency: the estimate is wrong."""
    data, model = slower(1 / 1.6), load_model(few)
    assert correction_of(few) == OF_EFFICIENCY
    first = [
        min(rows, key=lambda row: -model_scores[row]) for model_scores in [model.scores(data)] for rows in rows_of(data)
    ]
    by_estimate = [min(rows, key=lambda row: estimates()[row]) for rows in rows_of(data)]
    ms = data.frame["latency_ms"].to_numpy()
    best = np.array([ms[rows].min() for rows in rows_of(data)])
    assert (best / ms[first]).mean() > (best / ms[by_estimate]).mean() + 0.1


def rows_of(data: Dataset) -> list[NDArray[np.int64]]:
    """Rows of each problem."""
    return [np.flatnonzero(data.problem_ids == number) for number in range(len(data.problems()))]


def test_without_evidence_the_order_is_the_estimates(tmp_path: Path) -> None:
    """Five pairs of AMD's measurements have no weight, and all kernels of the pool are ranked."""
    model = load_model(trained_on(amd(), 5, tmp_path / "model"))
    assert correction_of(model.path) == 0.0
    problem = amd().problems()[0]
    every = ranking_of(problem, estimate_model(wanted_for(problem, "gfx950")))
    ranking = ranking_of(problem, model)
    assert sorted(map(str, ranking.pool)) == sorted(map(str, every.pool))
    assert ranking.score == pytest.approx(-np.log(-every.score), rel=1e-12)


@pytest.mark.slow
def test_folds_choose_by_the_estimate_corrected_by_the_other_folds() -> None:
    """Out-of-fold efficiencies are those of the corrected estimate, whose errors have no scale."""
    half = np.sort(np.random.default_rng(0).permutation(len(amd()))[::2])
    data = slower(1 / 1.6).select(half)
    options = replace(data.op.training.defaults(len(data)), targets=(), folds=3)
    target = train(data, options, lambda *_: None).targets["rank"]
    first = [rows[estimates()[half][rows].argmin()] for rows in rows_of(data)]
    by_estimate = efficiency_of(data)[first].mean()
    assert target.oof_mean_efficiency is not None
    assert target.oof_mean_efficiency > by_estimate + 0.1
    assert [fold.rmse for fold in target.folds] == [None] * 3


def test_the_ranker_of_few_rows_has_the_estimate() -> None:
    """Scores of `ckh.KernelRanker` without evidence are the estimate's."""
    rows = amd().select(np.arange(0, len(amd()), 77))
    ranker = KernelRanker(folds=0).fit(rows.frame, rows.frame["latency_ms"])
    assert ranker.predict(rows.frame) == pytest.approx(row_scores(rows), abs=1e-9)
    assert row_scores(rows) == pytest.approx(-np.log(estimates()[::77]), abs=1e-9)


@pytest.mark.slow
def test_c_ranks_as_python_does(few: Path, tmp_path: Path) -> None:
    """The export of a model of few pairs has the same first kernels."""
    exported = export(tmp_path / "c", [load_model(few)])
    program = compile_program(exported, HARNESS, "-O0")
    problems = amd().problems()[:20]
    answers = ask(program, exported / "models" / "model.ckhm", [*map(line_of, problems)])
    for problem, answer in zip(problems, answers, strict=True):
        ranking = ranking_of(problem, load_model(few))
        assert answer.kernels[0] == ranking.model.spec.op.kernels.name(ranking.best(1)[0].kernel)


def test_a_model_without_trees_is_not_continued(tmp_path: Path) -> None:
    """A warm start adds trees to trees."""
    start = read_start(trained_on(amd(), 5, tmp_path / "model"))
    options = continued(start, TrainOptions())
    with expect_refusal(UsageError, "not-continuable", "no trees"):
        train(amd().select(np.arange(40)), options, lambda *_: None, start)


@pytest.mark.slow
def test_a_continued_model_keeps_the_estimate(few: Path) -> None:
    """New trees correct what the estimate and the trees of the start leave, here trees that learned other times."""
    data, start = slower(1.0), read_start(few)
    options = replace(continued(start, TrainOptions(targets=())), folds=3)
    made = train(data, replace(options, params=replace(options.params, n_estimators=200)), lambda *_: None, start)
    target = made.targets["rank"]
    assert target.correction == 1.0
    assert target.comparison is not None
    assert target.comparison.mean_efficiency > target.comparison.start_mean_efficiency + 0.01


def test_without_an_estimate_there_is_no_correction() -> None:
    """The host has no peak rates, and a name may match no kernel of the pool."""
    data = amd()
    assert complete_kernels(measured(), measured().frame["kernel"].unique().tolist()) is None
    names = data.frame["kernel"].unique().tolist()
    assert complete_kernels(data, [*names, "grouped_conv_forward_bf16_2d_1x1x1_mem"]) is None
    assert estimated_logs(measured()) is None


def test_kernels_are_found_though_the_first_problem_has_others() -> None:
    """Short names of AMD's kernels are in no pool of few channels, which the first problem may have."""
    from benchmarks.estimate_prior import FILES

    data = read_dataset(FILES[30]).valid()
    is_few = np.array([has_few_channels(problem.c, problem.k, problem.g) for problem in data.problems()])
    rows = data.select(is_few[data.problem_ids]).frame, data.select(~is_few[data.problem_ids]).frame
    first = Dataset(pd.concat(rows, ignore_index=True))
    assert has_few_channels(first.problems()[0].c, first.problems()[0].k, first.problems()[0].g)
    names = sorted(set(first.frame["kernel"]))
    found: Any = complete_kernels(first, names)
    assert found is not None
    for name, kernel in zip(names, found, strict=True):
        assert f"{kernel.tile_m}x{kernel.tile_n}x{kernel.tile_k}" in name
        assert kernel.pipeline in name


@pytest.mark.slow
def test_few_kernels_of_a_problem_do_not_replace_the_estimate(tmp_path: Path) -> None:
    """1,000 of AMD's pairs choose better by trees alone among the six kernels of a problem, and worse among twenty."""
    from benchmarks.estimate_prior import FILES

    assert correction_of(trained_on(read_dataset(FILES[30]).valid(), 1000, tmp_path / "model", seed=1)) <= 0.3


@pytest.mark.slow
@pytest.mark.parametrize(("learned", "judged"), [*product((20,), (30,)), *product((30,), (20,))])
def test_a_hundred_pairs_choose_better_with_the_estimate(learned: int, judged: int) -> None:
    """On the problems of the other file the model with its prior is four points better than trees alone."""
    from benchmarks.estimate_prior import FILES, chosen, options_of, random_pairs

    first, second = (read_dataset(FILES[number]).valid() for number in (learned, judged))
    pairs = random_pairs(first, 100, seed=0)
    with_prior, without = (chosen(pairs, second, options_of(pairs, prior)).mean() for prior in (1.0, 0.0))
    assert with_prior > without + 0.04
