"""Comparison of two models on the same problems: counts, and where the verdict changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.assess.compare import Comparison, Degraded, Thresholds
from ckh.assess.compare import compare as compare_parts
from ckh.assess.ranked_rows import RankedRows
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.learn.conftest import build, kernels
from tests.refusals import expect_values

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset

A, B, C = kernels()[:3]
FIRST = ConvProblem(Direction.FORWARD, 1, 16, 16, 1, 8, 8, 3, 3)
PROBLEMS = [replace(FIRST, n=n) for n in (1, 2, 4, 8)]
OLD = np.tile([3.0, 2.0, 1.0], 4)  # always A
LOOSE = Thresholds(mean=1, median=1, p10=1, problem=1)


def data(*times: tuple[float, float, float], failed: tuple[int, ...] = ()) -> Dataset:
    """Times of A, B and C on successive problems."""
    rows = [
        (problem, *pair)
        for problem, of in zip(PROBLEMS, times, strict=False)
        for pair in zip((A, B, C), of, strict=True)
    ]
    return build(rows, failed)


def compare(dataset: Dataset, old: np.ndarray, new: np.ndarray, thresholds: Thresholds) -> Comparison:
    """Compare scores of all rows of a dataset."""
    old_rows, new_rows = (RankedRows.by_scores(dataset, scores) for scores in (old, new))
    return compare_parts([dataset], lambda _: old_rows, lambda _: new_rows, thresholds)


def choosing(*columns: int) -> np.ndarray:
    """Scores that choose the kernel of a column on each problem."""
    return np.eye(3)[list(columns)].ravel()


def test_counts_by_hand() -> None:
    """One problem improves, one has the same choice, one is equally fast, one is worse; equal choices are agreement."""
    four = data((2, 1, 4), (1, 2, 4), (1, 1, 4), (1, 1.25, 4))
    comparison = compare(four, OLD, choosing(1, 0, 1, 1), LOOSE)
    assert (comparison.problems, comparison.agreement) == (4, 0.25)
    assert (comparison.improved, comparison.same) == (1, 2)
    assert comparison.degraded == (Degraded(PROBLEMS[3].canonical(), 1.0, 0.8),)
    assert comparison.degraded[0].loss == pytest.approx(0.2)
    mean, median, p10 = comparison.differences
    assert (mean.old, mean.new) == pytest.approx((3.5 / 4, 3.8 / 4))
    assert (median.old, median.new) == pytest.approx((1.0, 1.0))
    assert (p10.old, p10.new) == pytest.approx((0.5 + 0.3 * 0.5, 0.8 + 0.3 * 0.2))
    assert comparison.passes


def test_the_same_scores_pass_with_nothing_allowed() -> None:
    """A model compared with itself agrees everywhere and loses nothing."""
    four = data((2, 1, 4), (1, 2, 4), (3, 2, 1), (1, 1, 4), failed=(0,))
    comparison = compare(four, OLD, OLD, Thresholds(0, 0, 0, 0))
    assert (comparison.agreement, comparison.improved, comparison.same, comparison.degraded) == (1.0, 0, 4, ())
    assert comparison.passes


def test_the_worst_loss_comes_first() -> None:
    """Degraded problems are ordered by relative loss."""
    three = data((1, 1.25, 9), (2, 4, 1), (1, 4, 9))
    comparison = compare(three, OLD[:9], choosing(1, 1, 1), LOOSE)
    assert [item.problem for item in comparison.degraded] == [PROBLEMS[i].canonical() for i in (2, 1, 0)]
    assert [degraded.loss for degraded in comparison.degraded] == pytest.approx([0.75, 0.5, 0.2])


@pytest.mark.parametrize(("name", "figure"), [("mean", "mean"), ("median", "median"), ("p10", "P10")])
def test_a_figure_may_lose_what_is_allowed_and_no_more(name: str, figure: str) -> None:
    """All figures fall from 1 to 0.75: a loss of exactly 0.25 passes, any larger loss fails."""
    item = data((3, 4, 9))
    allowed = compare(item, OLD[:3], choosing(1), replace(LOOSE, **{name: 0.25}))
    assert allowed.failures == ()
    failed = compare(item, OLD[:3], choosing(1), replace(LOOSE, **{name: 0.25 - 1e-9}))
    (failure,) = failed.failures
    expect_values(failure, figure, "100.00%", "75.00%", "25.0%")
    assert not failed.passes


def test_a_problem_may_lose_what_is_allowed_and_no_more() -> None:
    """A relative loss of exactly a quarter passes; otherwise the failing problems are counted, with the worst."""
    three = data((3, 4, 9), (3, 4, 9), (3, 6, 9))
    assert compare(three, OLD[:9], choosing(1, 1, 0), replace(LOOSE, problem=0.25)).passes
    comparison = compare(three, OLD[:9], choosing(1, 1, 1), replace(LOOSE, problem=0.2))
    (failure,) = comparison.failures
    expect_values(failure, 3, "20%", "50.0%")


def test_the_loss_of_a_problem_is_relative_to_the_old_model() -> None:
    """From 0.5 to 0.4 the relative loss is a fifth, although only a tenth of the oracle."""
    item = data((2, 2.5, 1))
    assert compare(item, OLD[:3], choosing(1), replace(LOOSE, problem=0.21)).passes
    assert not compare(item, OLD[:3], choosing(1), replace(LOOSE, problem=0.19)).passes


def test_choosing_a_failure_has_efficiency_0() -> None:
    """A new choice without a time has efficiency 0; an old choice that failed cannot be degraded."""
    two = data((1, 2, 4), (1, 2, 4), failed=(1, 3))
    comparison = compare(two, OLD[:6], choosing(1, 1), LOOSE)
    assert [(degraded.new_efficiency, degraded.loss) for degraded in comparison.degraded] == [(0.0, 1.0)]
    assert (comparison.improved, comparison.same) == (1, 0)
    assert not compare(two, OLD[:6], choosing(1, 1), replace(LOOSE, problem=0.99)).passes


def test_differences_have_paired_intervals() -> None:
    """A uniform loss has no uncertainty; a loss on half of the problems has about 1.96 standard errors."""
    problems = [replace(FIRST, n=n) for n in range(1, 401)]
    many = build([(problem, *pair) for problem in problems for pair in zip((A, B, C), (1.0, 2.0, 4.0), strict=True)])
    first = choosing(*[0] * 400)
    mean = compare(many, first, choosing(*[1] * 400), LOOSE).differences[0]
    assert (mean.old, mean.new, mean.low, mean.high) == pytest.approx((1.0, 0.5, -0.5, -0.5))
    half = compare(many, first, choosing(*[0, 1] * 200), LOOSE).differences[0]
    error = 1.96 * 0.25 / 20
    assert (half.low, half.high) == pytest.approx((-0.25 - error, -0.25 + error), abs=0.1 * error)


def test_only_newly_refused_problems_fail_the_gate() -> None:
    """A problem that the old model alone answers fails it; one that the new model alone answers does not."""
    dataset = data((1.0, 2.0, 3.0), (1.0, 2.0, 3.0))
    both = RankedRows.by_scores(dataset, OLD[:6])
    first = both.first.copy()
    first[1] = ""
    fewer = replace(both, first=first)
    lost, gained = (
        compare_parts([dataset], lambda _, old=old: old, lambda _, new=new: new, LOOSE)  # type: ignore[misc]
        for old, new in ((both, fewer), (fewer, both))
    )
    assert [check.detail for check in lost.checks if check.failure] == [PROBLEMS[1].canonical()]
    assert gained.passes
