"""The analytic estimate corrected by few measurements."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.api.ranker import KernelRanker
from ckh.archs import load_arch
from ckh.data.dataset import Dataset, read_dataset
from ckh.errors import UsageError
from ckh.learn.analytic.corrected import complete_kernels, estimate_term, row_scores
from ckh.learn.analytic.estimate import estimated_us
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import Model, load_model, wanted_for
from ckh.learn.models.spec import EstimateTerm
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.learn.training.warm_start import continued, read_start
from ckh.ops.grouped_conv.kernel import amd_short_name
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


def alike(item: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Correlation of two problems' deviations, by M, N and K of the matrix product."""
    return exp(-sum(log(a / b) ** 2 for a, b in zip(item, other, strict=True)) / 8)


@pytest.mark.slow
def test_offsets_are_of_a_gaussian_process_written_out() -> None:
    """By loops over pairs of rows; an offset is the deviation from the mean of its kind, less two deviations."""
    data = slower(1.8)
    rows = np.sort(np.random.default_rng(4).choice(len(data), 60, replace=False))
    taken = data.select(rows)
    where, what = [data.problems()[data.problem_ids[row]] for row in rows], taken.frame["kernel"].tolist()
    kernels = [KERNEL[name] for name in what]
    names = sorted(set(what))
    estimated = np.array([estimated_of(item, [kernel])[0] for item, kernel in zip(where, kernels, strict=True)])

    def covariance(i: int, j: int) -> float:
        kernel, other, near = kernels[i], kernels[j], alike(where[i].gemm_sizes, where[j].gemm_sizes)
        is_tile = (kernel.tile_m, kernel.tile_n, kernel.tile_k) == (other.tile_m, other.tile_n, other.tile_k)
        result = 10.0**2 + 0.25**2 * (where[i] == where[j]) + 0.3**2 * near
        result += (kernel.pipeline == other.pipeline) * (0.25**2 + 0.15**2 * near)
        result += is_tile * (0.1**2 + 0.1**2 * near) + (kernel == other) * (0.1**2 + 0.1**2 * near)
        if i == j:
            best = estimated_of(where[i], [KERNEL[name] for name in names]).min()
            result += 0.1**2 + (1.5 * log(estimated[i] / best)) ** 2
        return float(result)

    matrix = np.array([[covariance(i, j) for j in range(60)] for i in range(60)])
    error = np.log(taken.frame["latency_ms"].to_numpy()) - np.log(estimated)
    shared = np.array([[(kernel.pipeline == kind) * 0.25**2 for kernel in kernels] for kind in ("compv3", SECOND)])
    mean = shared @ np.linalg.inv(matrix) @ error
    spread = np.eye(2) * 0.25**2 - shared @ np.linalg.inv(matrix) @ shared.T
    apart = (mean[1] - mean[0]) / 2
    deviation = ((spread[0, 0] + spread[1, 1] - 2 * spread[0, 1]) / 4) ** 0.5
    term = term_of(data, rows)
    assert term.weight == 1.0
    assert apart - 2 * deviation > 0.02
    assert term.offsets[SECOND] == pytest.approx(apart - 2 * deviation, abs=1e-7)
    assert term.offsets["compv3"] == pytest.approx(2 * deviation - apart, abs=1e-7)


def slower(factor: float) -> Dataset:
    """The dataset with estimated times, in which one pipeline takes longer by a factor."""
    data = amd()
    is_second = np.array([KERNEL[name].pipeline == SECOND for name in data.frame["kernel"]])
    return Dataset(data.frame.assign(latency_ms=estimates() / 1000 * np.where(is_second, factor, 1.0)))


def term_of(data: Dataset, rows: NDArray[np.int64]) -> EstimateTerm:
    """The estimate's part in a model of these rows alone."""
    term = estimate_term(data.select(rows), np.arange(len(rows)))
    assert term is not None
    return term


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "least"), [(100, 1.02), (400, 1.15)])
def test_a_slower_pipeline_is_learned_from_few_measurements(pairs: int, least: float) -> None:
    """If a pipeline is 1.6 times slower than estimated, pairs show a part of it with certainty, and nothing else."""
    rows = np.sort(np.random.default_rng(1).choice(len(amd()), pairs, replace=False))
    term = term_of(slower(1.6), rows)
    assert set(term.offsets) == {"compv3", SECOND}
    assert least < exp(term.offsets[SECOND] - term.offsets["compv3"]) < 1.6


@pytest.mark.slow
def test_measurements_as_estimated_change_nothing() -> None:
    """Times proportional to the estimates give no offset, with any number of rows."""
    for pairs in (5, 50, 1000):
        rows = np.sort(np.random.default_rng(2).choice(len(amd()), pairs, replace=False))
        assert term_of(slower(1.0), rows) == EstimateTerm(1.0, {})


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a hundred pairs with a slower pipeline."""
    return trained_on(slower(1.6), 100, tmp_path_factory.mktemp("few") / "model")


def trained_on(data: Dataset, pairs: int, folder: Path) -> Path:
    """A model of random pairs."""
    from benchmarks.estimate_prior import options_of, random_pairs

    rows = random_pairs(data, pairs, 0)
    save(train(rows, options_of(rows, 1.0), lambda *_: None), folder)
    return folder


def test_the_score_is_the_estimate_less_offsets(few: Path) -> None:
    """For all kernels of the pool, also of tiles and pipelines without a row, in C, NumPy and for rows of a dataset."""
    model = load_model(few)
    term = model.spec.estimate
    assert term is not None
    for problem in amd().problems()[:3]:
        pool: Any = ranking_of(problem, model).pool
        every = ranking_of(problem, estimate_model(wanted_for(problem, "gfx950")))
        assert sorted(map(str, pool)) == sorted(map(str, every.pool))
        offset = np.array([term.offsets.get(kernel.pipeline, 0.0) for kernel in pool])
        expected = -np.log(estimated_of(problem, pool)) - offset
        assert model.score_pool([problem], pool)[0][0] == pytest.approx(expected, rel=1e-12)
        assert model.predict(problem, pool, "rank") == pytest.approx(expected, rel=1e-12)
    offset = np.array([term.offsets.get(KERNEL[name].pipeline, 0.0) for name in amd().frame["kernel"]])
    assert model.scores(amd()) == pytest.approx(-np.log(estimates()) - offset, rel=1e-12)


def test_without_evidence_the_order_is_the_estimates(tmp_path: Path) -> None:
    """Five pairs of AMD's measurements have no offsets."""
    model = load_model(trained_on(amd(), 5, tmp_path / "model"))
    assert model.spec.estimate == EstimateTerm(1.0, {})


@pytest.mark.slow
@pytest.mark.usefixtures("small_priors")
def test_many_rows_have_trees_beside_the_estimate(tmp_path: Path) -> None:
    """From 3,000 rows on the score is that of the trees less 0.3 times the log of the estimate."""
    model = load_model(trained_on(amd(), 3000, tmp_path / "model"))
    assert model.spec.estimate == EstimateTerm(0.3, {})
    trees = Model(model.path, replace(model.spec, estimate=None)).predict_dataset(amd(), "rank")
    assert np.ptp(trees) > 0.5
    scores = model.scores(amd())
    assert scores == pytest.approx(trees - 0.3 * np.log(estimates()), rel=1e-12)
    of_first = amd().problem_ids == 0
    problem, kernels = amd().problems()[0], tuple(KERNEL[name] for name in amd().frame["kernel"][of_first])
    assert model.predict(problem, kernels, "rank") == pytest.approx(scores[of_first], rel=1e-9)
    assert model.score_pool([problem], kernels)[0][0] == pytest.approx(scores[of_first], rel=1e-9)


@pytest.mark.slow
def test_folds_choose_by_the_estimate_corrected_by_the_other_folds() -> None:
    """Out-of-fold efficiencies of few rows are those of the estimate, whose offsets are from the other rows."""
    data = slower(1.6).select(np.arange(0, len(amd()), 4))
    options = replace(data.op.training.defaults(len(data)), targets=(), folds=3)
    target = train(data, options, lambda *_: None).targets["rank"]
    assert target.oof_mean_efficiency == pytest.approx(1.0, abs=1e-3)
    assert [fold.rmse for fold in target.folds] == [None] * 3


def test_the_ranker_of_few_rows_has_the_estimate() -> None:
    """Scores of `ckh.KernelRanker` are those of a model of the same rows."""
    rows = slower(1.6).select(np.arange(0, len(amd()), 10))
    ranker = KernelRanker(folds=0).fit(rows.frame, rows.frame["latency_ms"])
    term = term_of(slower(1.6), np.arange(0, len(amd()), 10))
    assert ranker.predict(rows.frame) == pytest.approx(row_scores(rows, term), abs=1e-9)


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


def test_a_model_without_trees_is_not_continued(few: Path) -> None:
    """A warm start adds trees to trees."""
    start = read_start(few)
    options = continued(start, TrainOptions())
    with expect_refusal(UsageError, "not-continuable", "no trees"):
        train(amd().select(np.arange(40)), options, lambda *_: None, start)


def test_without_an_estimate_there_is_no_correction() -> None:
    """The host has no peak rates, and a name may match no kernel of the pool."""
    data = amd()
    assert complete_kernels(measured(), measured().frame["kernel"].unique().tolist()) is None
    names = data.frame["kernel"].unique().tolist()
    assert complete_kernels(data, [*names, "grouped_conv_forward_bf16_2d_1x1x1_mem"]) is None
    assert estimate_term(measured(), np.arange(8)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("learned", "judged"), [*product((20,), (30,)), *product((30,), (20,))])
def test_a_hundred_pairs_choose_better_with_the_estimate(learned: int, judged: int) -> None:
    """On the problems of the other file the model with its prior is four points better than trees alone."""
    from benchmarks.estimate_prior import FILES, chosen, options_of, random_pairs

    first, second = (read_dataset(FILES[number]).valid() for number in (learned, judged))
    pairs = random_pairs(first, 100, seed=0)
    with_prior, without = (chosen(pairs, second, options_of(pairs, prior)).mean() for prior in (1.0, 0.0))
    assert with_prior > without + 0.04
