"""Remeasured kernels and their results."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ckh.assess.oracle import Contest, contests, first_measured, measured_again, with_sample
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.learn.conftest import build, kernels

A, B, C = kernels()[:3]
NAME_A, NAME_B, NAME_C = map(kernel_name, (A, B, C))
ONE = ConvProblem(Direction.FORWARD, 1, 16, 16, 1, 8, 8, 3, 3)
TWO = replace(ONE, n=2)


def test_the_oracle_comes_first_then_the_choices() -> None:
    """Rows may be interleaved; the oracle's kernel is repeated as a choice, and a failure is never the oracle."""
    data = build([(ONE, A, 3), (TWO, A, 1), (ONE, B, 1), (TWO, B, 2), (ONE, C, 2), (TWO, C, 3)], failed=[2])
    scores = np.array([1.0, 5.0, 3.0, 9.0, 2.0, 4.0])
    result = contests(data, first_measured(data, scores, 2))
    assert result == [
        Contest(ONE.canonical(), (NAME_C, NAME_B, NAME_C), 2),
        Contest(TWO.canonical(), (NAME_A, NAME_B, NAME_A), 2),
    ]


def test_more_choices_than_kernels_are_all() -> None:
    """A problem with two kernels has two choices."""
    data = build([(ONE, A, 3), (ONE, B, 1)])
    result = contests(data, first_measured(data, np.array([1.0, 0.0]), 10))
    assert result == [Contest(ONE.canonical(), (NAME_B, NAME_A, NAME_B), 2)]


def test_efficiencies_of_remeasured_kernels() -> None:
    """Medians are used, and the best of all has efficiency 1: here the second choice beats the oracle's kernel."""
    again = measured_again(Contest("p", ("o", "x", "y"), 2), [[5.0, 4.0, 90.0], [10.0, 10.0], [2.0, 1.0, 3.0]])
    assert again.times_ns == (5.0, 10.0, 2.0)
    assert (again.oracle_efficiency, again.first_efficiency, again.top_efficiency) == pytest.approx((0.4, 0.2, 1.0))


def test_a_failed_remeasurement_has_efficiency_0() -> None:
    """Without samples there is no time and an efficiency of 0; the others are compared with each other."""
    again = measured_again(Contest("p", ("o", "x", "y"), 2), [[4.0], [], [8.0]])
    assert again.times_ns == (4.0, None, 8.0)
    assert (again.oracle_efficiency, again.first_efficiency, again.top_efficiency) == (1.0, 0.0, 0.5)
    no_oracle = measured_again(Contest("p", ("o", "x"), 1), [[], [8.0]])
    assert (no_oracle.oracle_efficiency, no_oracle.first_efficiency) == (0.0, 1.0)
    nothing = measured_again(Contest("p", ("o", "x"), 1), [[], []])
    assert (nothing.oracle_efficiency, nothing.first_efficiency, nothing.top_efficiency) == (0.0, 0.0, 0.0)
    assert not math.isnan(nothing.top_efficiency)


def test_a_sample_is_random_and_shared_by_problems() -> None:
    """Each problem gets that many of its own candidates; shared kernels are drawn for both problems or for neither."""
    of = {"p": [f"k{i}" for i in range(40)], "q": [f"k{i}" for i in range(20, 60)]}
    result = with_sample([Contest(name, ("k20", "k21"), 1) for name in of], of.__getitem__, 10, seed=3)
    for contest in result:
        assert len(set(contest.sample)) == 10
        assert set(contest.sample) <= set(of[contest.problem])
        assert contest.candidates == 40
        assert contest.kernels[:2] == ("k20", "k21")
        assert set(contest.kernels[2:]) == set(contest.sample) - {"k20", "k21"}
    both = {f"k{i}" for i in range(20, 40)}
    first, second = (set(contest.sample) & both for contest in result)
    assert first <= second or second <= first
    again = with_sample([Contest("p", ("k20", "k21"), 1)], of.__getitem__, 10, seed=4)
    assert set(again[0].sample) != set(result[0].sample)
    counts = np.zeros(40)
    for seed in range(400):
        (contest,) = with_sample([Contest("p", ("k0",), 0)], of.__getitem__, 10, seed)
        counts[[int(name[1:]) for name in contest.sample]] += 1
    assert counts.min() > 60  # of 100 expected: all kernels are drawn
    assert counts.max() < 140


@pytest.mark.parametrize(("drawn", "of"), [(59, 300), (10, 40), (40, 40), (1, 5)])
def test_missed_share_equals_sampling_probability(drawn: int, of: int) -> None:
    """With one more faster kernel a sample includes one in 95 % of cases; without it, it does not."""
    contest = Contest("p", ("k",), 1, tuple(map(str, range(drawn))), of)
    faster = round(contest.missed_share * of)

    def missing(count: int) -> float:
        """Probability that a sample includes none of `count` kernels, as a product of draws."""
        return math.prod(max(of - count - i, 0) / (of - i) for i in range(drawn))

    assert missing(faster + 1) <= 0.05 or faster + 1 > of - drawn
    assert faster == 0 or missing(faster) > 0.05
    assert Contest("p", ("k",), 1).missed_share == 1.0


def test_the_best_of_all_is_estimated_from_the_sample() -> None:
    """Speeds of the sample's two fastest are extrapolated, unless all were measured or a measured kernel is faster."""
    contest = Contest("p", ("o", "x", "a", "b"), 1, ("a", "b"), 50)
    again = measured_again(contest, [[10.0], [8.0], [5.0], [6.0]])
    assert again.estimated_best_ns == pytest.approx(1 / (2 / 5 - 1 / 6))
    assert again.estimated_efficiency == pytest.approx(again.estimated_best_ns / 8)
    assert again.first_efficiency == 5 / 8
    assert again.sample_won
    assert again.top_efficiency == 5 / 8
    fast = measured_again(contest, [[10.0], [1.0], [5.0], [6.0]])
    assert (fast.estimated_best_ns, fast.sample_won) == (1.0, False)
    every = measured_again(replace(contest, candidates=2), [[10.0], [8.0], [5.0], [6.0]])
    assert every.estimated_best_ns == 5.0
    alone = measured_again(contest, [[10.0], [8.0], [5.0], []])
    assert alone.estimated_best_ns == 5.0
