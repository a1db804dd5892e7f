"""The analytic estimate corrected by few measurements."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.analytic.corrected import CorrectedEstimate, complete_kernels
from ckh.learn.analytic.estimate import estimated_us
from ckh.learn.analytic.prior import has_prior, prior_rows
from ckh.learn.analytic.transfer import EstimateModel
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model, wanted_for
from ckh.learn.training.save import save
from ckh.learn.training.train import train
from ckh.ops.grouped_conv.kernels.names import amd_short_name
from ckh.ops.grouped_conv.law import LAW_TERMS
from tests.learn.conftest import AMD_KERNELS, measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

KERNEL = {amd_short_name(one): one for one in reversed(AMD_KERNELS)}
SECOND = "compv4"


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


def estimates(data: Dataset) -> NDArray[np.float64]:
    """Estimated times of all rows, computed individually."""
    rows = zip(data.problem_ids, data.frame["kernel"], strict=True)
    return np.array([estimated_of(data.problems()[number], [KERNEL[name]])[0] for number, name in rows])


def alike(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Correlation of two problems' deviations, by M, N and K of the matrix product."""
    return exp(-sum(log(a / b) ** 2 for a, b in zip(one, other, strict=True)) / 8)


def test_the_correction_is_a_gaussian_process_written_out() -> None:
    """By loops over pairs of twelve rows: the difference of two kernels on another problem."""
    data = amd()
    rows = np.random.default_rng(4).choice(len(data), 12, replace=False)
    taken = data.select(np.sort(rows))
    where, what = [data.problems()[data.problem_ids[row]] for row in sorted(rows)], taken.frame["kernel"].tolist()
    kernels = [KERNEL[name] for name in what]
    estimated = estimates(taken)
    names = sorted(set(what))

    def covariance(i: int, j: int) -> float:
        one, other, near = kernels[i], kernels[j], alike(where[i].gemm_sizes, where[j].gemm_sizes)
        tiles = [(k.tile_m, k.tile_n, k.tile_k) for k in (one, other)]
        found = 10.0**2 + 0.25**2 * (where[i] == where[j]) + 0.3**2 * near
        found += (one.pipeline == other.pipeline) * (0.25**2 + 0.15**2 * near)
        found += (tiles[0] == tiles[1]) * (0.1**2 + 0.1**2 * near) + (one == other) * (0.1**2 + 0.1**2 * near)
        if i == j:
            of_problem = estimated_of(where[i], [KERNEL[name] for name in names])
            found += 0.1**2 + (1.5 * log(estimated[i] / of_problem.min())) ** 2
        return float(found)

    error = np.log(taken.frame["latency_ms"].to_numpy() / estimated)
    matrix = np.array([[covariance(i, j) for j in range(12)] for i in range(12)])
    weight = np.linalg.inv(matrix) @ error
    problem = next(one for one in data.problems() if one not in where)

    def of(kernel: ConvKernel) -> float:
        kernels.append(kernel)
        where.append(problem)
        total = sum(weight[j] * covariance(12, j) for j in range(12))
        del kernels[12:], where[12:]
        return float(total) + log(estimated_of(problem, [kernel])[0])

    found = CorrectedEstimate.of(taken, np.arange(12), 0)
    assert found is not None
    times = found.relative_times([problem])[0]
    expected = [of(KERNEL[name]) for name in names]
    assert np.diff(times[: len(names)]) == pytest.approx(np.diff(expected), abs=1e-7)


@pytest.mark.parametrize(("pairs", "least"), [(30, 1.35), (200, 1.5)])
def test_a_slower_pipeline_is_learned_from_few_measurements(pairs: int, least: float) -> None:
    """If one pipeline is 1.6 times slower than estimated, pairs determine the factor; tiles keep their order."""
    data = amd()
    is_second = np.array([KERNEL[name].pipeline == SECOND for name in data.frame["kernel"]])
    made = Dataset(data.frame.assign(latency_ms=estimates(data) / 1000 * np.where(is_second, 1.6, 1.0)))
    rows = np.sort(np.random.default_rng(1).choice(len(data), pairs, replace=False))
    found = CorrectedEstimate.of(made, rows, 0)
    assert found is not None
    seen = set(data.problem_ids[rows])
    unseen = [one for number, one in enumerate(data.problems()) if number not in seen]
    kernels = [KERNEL[name] for name in np.unique(data.frame["kernel"].to_numpy(str)[rows])]
    of_second = np.array([one.pipeline == SECOND for one in kernels])
    factors = []
    for problem, times in zip(unseen, found.relative_times(unseen), strict=True):
        plain = np.log(estimated_of(problem, kernels))
        change = times[: len(kernels)] - plain
        factors.append(exp(change[of_second].mean() - change[~of_second].mean()))
        assert change[of_second].std() < 0.1
        assert change[~of_second].std() < 0.1
    assert least < np.median(factors) < 1.65


def changes(data: Dataset, made: Dataset, pairs: int) -> tuple[float, float]:
    """Share of problems whose first of AMD's kernels is not the estimate's: corrected, and cautiously."""
    amds = [KERNEL[name] for name in data.frame["kernel"].unique()]
    by_kind = {(one.tile_k, one.tile_m, one.tile_n, one.pipeline, 0): one for one in amds}
    kind = ("block_size", "gemm_m_per_block", "gemm_n_per_block", "pipeline", "has_si")
    is_changed = []
    for seed in range(3):
        rows = np.sort(np.random.default_rng(seed).choice(len(data), pairs, replace=False))
        found = CorrectedEstimate.of(made, rows, 0, whole_pool=True)
        assert found is not None
        kernels = [KERNEL[name] for name in np.unique(data.frame["kernel"].to_numpy(str)[rows])]
        others = [by_kind.get(one) for one in zip(*(found.others[name].tolist() for name in kind), strict=True)]
        places = [place for place, one in enumerate([*kernels, *others]) if one is not None]
        kernels += [one for one in others if one is not None]
        assert {*amds} == {*kernels}
        problems = data.problems()[::5]
        estimated = np.array([estimated_of(one, kernels) for one in problems])
        for times in (found.relative_times(problems), found.cautious_times(problems)):
            first = times[:, places].argmin(axis=1)
            is_changed.append(estimated[np.arange(len(problems)), first] > estimated.min(axis=1) * (1 + 1e-9))
    return float(np.mean(is_changed[::2])), float(np.mean(is_changed[1::2]))


def test_few_pairs_rarely_replace_the_first_choice_of_the_estimate() -> None:
    """With five pairs the correction changes a tenth of the first choices, to other tiles; cautiously none."""
    corrected, cautious = changes(amd(), amd(), 5)
    assert corrected > 0.05
    assert cautious == 0


def test_many_pairs_replace_it() -> None:
    """Where a pipeline takes 0.6 of its estimated time, 200 pairs change nearly as many choices as without caution."""
    data = amd()
    is_second = np.array([KERNEL[name].pipeline == SECOND for name in data.frame["kernel"]])
    made = Dataset(data.frame.assign(latency_ms=estimates(data) / 1000 * np.where(is_second, 0.6, 1.0)))
    corrected, cautious = changes(data, made, 200)
    assert cautious > 0.9 * corrected > 0.8


def test_a_model_of_five_pairs_ranks_all_kernels(tmp_path: Path) -> None:
    """Also those whose tile or pipeline was not measured; the first is the estimate's, or one that it ranks equal."""
    from benchmarks.estimate_prior import options_of

    data = amd()
    pairs = data.select(np.sort(np.random.default_rng(0).choice(len(data), 5, replace=False)))
    save(train(pairs, options_of(pairs, 1.0), lambda *_: None), tmp_path / "model")
    problem = pairs.problems()[0]
    found = ranking_of(problem, load_model(tmp_path / "model"))
    every = ranking_of(problem, EstimateModel(wanted_for(problem, "gfx950")))
    assert sorted(map(str, found.pool)) == sorted(map(str, every.pool))
    assert len(found.order) == len(every.order)
    times = estimated_of(problem, [found.pool[number] for number in found.order])
    assert times[0] == pytest.approx(times.min(), rel=1e-9)


def test_a_kernel_without_a_row_is_estimated_if_its_features_have_some() -> None:
    """A kernel without rows, whose tile and pipeline others have, is included once."""
    data = amd()
    missing = KERNEL[data.frame["kernel"].iloc[0]]
    rows = np.flatnonzero((data.frame["kernel"] != data.frame["kernel"].iloc[0]).to_numpy())
    names = ("block_size", "gemm_m_per_block", "gemm_n_per_block", "pipeline", "wave_mode", "has_dsb", "has_si")

    def others(rows: NDArray[np.int64]) -> list[tuple[object, ...]]:
        found = CorrectedEstimate.of(data, rows, 0)
        assert found is not None
        return [*zip(*(found.others[name].tolist() for name in names), strict=True)]

    tile = (missing.tile_k, missing.tile_m, missing.tile_n)
    wanted = (*tile, missing.pipeline, str(missing.scheduler), missing.double_smem_buffer, missing.split_image)
    assert sorted(others(rows)) == sorted([*others(np.arange(len(data))), wanted])


def test_without_an_estimate_there_is_no_correction() -> None:
    """The host has no peak rates, and a name may match no kernel of the pool."""
    data = amd()
    assert complete_kernels(measured(), measured().frame["kernel"].unique().tolist()) is None
    names = data.frame["kernel"].unique().tolist()
    assert complete_kernels(data, [*names, "grouped_conv_forward_bf16_2d_1x1x1_mem"]) is None
    assert CorrectedEstimate.of(measured(), np.arange(8), 0) is None


def test_few_rows_have_the_estimate_as_their_prior_and_many_the_law_too() -> None:
    """Twenty rows are too few for a time model; the estimate's weight falls as sqrt(rows), to 0 at 3,000.

    The time model's weight rises with the rows until there are as many as coefficients of all twenty kernels.
    """
    data = amd()
    efficiency = np.ones(len(data))
    few, more, many = (np.random.default_rng(2).choice(len(data), count, replace=False) for count in (20, 100, 1000))
    assert has_prior(data, few)
    weights = [prior_rows(data, rows, efficiency, 1) for rows in (few, more, many, np.arange(len(data)))]
    last = 30 / 3000**0.5
    law = 100 / (20 * (len(LAW_TERMS) + 1))
    expected = [30 / 20**0.5 - last, law + 30 / 100**0.5 - last, 1 + 30 / 1000**0.5 - last, 1]
    assert [one.weight for one in weights if one is not None] == pytest.approx(expected)


def test_trees_learn_the_estimate_from_more_problems_than_the_time_model() -> None:
    """With fifty rows 600 problems are drawn; with all rows, where there is no estimate, eight around each problem."""
    data = amd()
    for rows, fewest in ((np.arange(0, len(data), len(data) // 50), 600), (np.arange(len(data)), 8 * 158)):
        found = prior_rows(data, rows, np.ones(len(data)), 1)
        assert found is not None
        problems = len(np.unique(data.problem_ids[rows]))
        kernels, rest = divmod(len(found.efficiency), problems * (1 + fewest // problems))
        assert rest == 0
        assert kernels >= len(np.unique(data.frame["kernel"].to_numpy(str)[rows]))


@pytest.mark.slow
@pytest.mark.parametrize(("learned", "judged"), [*product((20,), (30,)), *product((30,), (20,))])
def test_a_hundred_pairs_choose_better_with_the_estimate(learned: int, judged: int) -> None:
    """On the problems of the other file the model with its prior is four points better than trees alone."""
    from benchmarks.estimate_prior import FILES, chosen, options_of, random_pairs

    first, second = (read_dataset(FILES[number]).valid() for number in (learned, judged))
    pairs = random_pairs(first, 100, seed=0)
    with_prior, without = (chosen(pairs, second, options_of(pairs, prior)).mean() for prior in (1.0, 0.0))
    assert with_prior > without + 0.04
