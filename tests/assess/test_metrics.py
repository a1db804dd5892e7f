"""Metrics of choices, compared with plain Python."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest

from ckh.assess.metrics import FIGURES, Times, TopK, best_of_first, choices, figures, places, summarize, top_k

PROBLEM = np.array([0, 1, 0, 1, 0, 1, 2])
LATENCY = np.array([2.0, 10.0, 1.0, 5.0, 1.015, 5.06, 3.0])
SPREAD = np.array([0.5, np.nan, 0.02, np.nan, 0.5, 0.9, 0.0])
TIMES = Times(PROBLEM, LATENCY, SPREAD)
SCORES = np.array([9.0, 3.0, 8.0, 1.0, 7.0, 2.0, 5.0])


def percentile(values: list[float], q: float) -> float:
    """Linear interpolation between order statistics, written out."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * q / 100
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def random_case(seed: int) -> tuple[Times, np.ndarray]:
    """200 rows of 17 problems with many ties."""
    random = np.random.default_rng(seed)
    problem = np.concatenate([np.arange(17), random.integers(0, 17, 183)])
    times = Times(problem, random.uniform(1, 5, 200), random.uniform(0, 0.3, 200))
    return times, random.integers(0, 6, 200).astype(np.float64)


def test_oracle_and_efficiency() -> None:
    """The oracle is the shortest time of a problem, efficiency the oracle over a row's time."""
    assert TIMES.count == 3
    assert TIMES.oracle_ms().tolist() == [1.0, 5.0, 3.0]
    expected = [1 / 2, 5 / 10, 1.0, 1.0, 1 / 1.015, 5 / 5.06, 1.0]
    assert TIMES.efficiency().tolist() == pytest.approx(expected, rel=1e-15)


def test_ties_are_within_the_spread_of_the_oracle() -> None:
    """1.015 is within the oracle's 2 %, 5.06 not within the default 1 %."""
    assert TIMES.is_best().tolist() == [False, False, True, True, True, False, True]
    near = Times(PROBLEM, np.where(LATENCY == 5.06, 5.04, LATENCY), SPREAD)
    assert near.is_best()[5]


def test_no_rows_are_no_problems() -> None:
    """Empty times have no problems."""
    nothing = np.array([])
    assert Times(np.array([], dtype=np.int64), nothing, nothing).count == 0


def test_the_first_of_equal_scores_is_chosen() -> None:
    """The first row of a tie is chosen, even if problems alternate."""
    assert choices(SCORES, PROBLEM, 3).tolist() == [0, 1, 6]
    assert choices(np.zeros(7), PROBLEM, 3).tolist() == [0, 1, 6]
    assert choices(np.array([1.0, 0, 2, 2, 2, 2, 0]), PROBLEM, 3).tolist() == [2, 3, 6]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_places_and_choices_equal_sorting(seed: int) -> None:
    """Ranks equal a stable sort by score within each problem; rank 0 is the choice."""
    times, scores = random_case(seed)
    place, chosen = places(scores, times.problem), choices(scores, times.problem, 17)
    for number in range(17):
        rows = [row for row in range(200) if times.problem[row] == number]
        ordered = sorted(rows, key=lambda row: -scores[row])
        assert [int(place[row]) for row in ordered] == list(range(len(rows)))
        assert int(chosen[number]) == ordered[0]


def first_k(times: Times, scores: np.ndarray, ks: tuple[int, ...]) -> list[TopK]:
    """Results of measuring the first k choices."""
    return top_k(best_of_first(times, places(scores, times.problem).astype(np.float64), ks), times.own_tolerance(), ks)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_top_k_equals_looking_at_the_first_k(seed: int) -> None:
    """Hit rates and best efficiencies of the first k equal those of a plain loop."""
    times, scores = random_case(seed)
    for result in first_k(times, scores, (1, 3, 10)):
        hits, best = [], []
        for number in range(17):
            rows = [row for row in range(200) if times.problem[row] == number]
            oracle = min(rows, key=lambda row: times.latency_ms[row])
            first = sorted(rows, key=lambda row: -scores[row])[: result.k]
            least = min(float(times.latency_ms[row]) for row in first)
            hits.append(least <= times.latency_ms[oracle] * (1 + max(0.01, times.spread[oracle])))
            best.append(float(times.latency_ms[oracle]) / least)
        assert result.hit == pytest.approx(fmean(hits), rel=1e-12)
        assert result.efficiency_mean == pytest.approx(fmean(best), rel=1e-12)
        assert result.efficiency_p10 == pytest.approx(percentile(best, 10), rel=1e-12)


def test_each_problem_has_its_own_tolerance() -> None:
    """Also behind a problem without a measured kernel among the first k."""
    (result,) = top_k(np.array([[np.nan, 0.9, 0.9]]), np.array([0.01, 0.2, 0.2]), (1,))
    assert (result.problems, result.hit) == (2, 1.0)


def test_k_beyond_the_number_of_kernels_is_all() -> None:
    """With k beyond the number of kernels the best is always included."""
    (result,) = first_k(TIMES, SCORES, (99,))
    assert (result.hit, result.efficiency_mean, result.efficiency_p10) == (1.0, 1.0, 1.0)


def test_a_failed_choice_has_efficiency_0() -> None:
    """A row with infinite time has efficiency 0 and is never best if another row has a time."""
    times = Times(np.array([0, 0]), np.array([np.inf, 4.0]), np.array([np.nan, 0.0]))
    assert times.efficiency().tolist() == [0.0, 1.0]
    assert times.is_best().tolist() == [False, True]
    first, second = first_k(times, np.array([2.0, 1.0]), (1, 2))
    assert (first.hit, first.efficiency_mean) == (0.0, 0.0)
    assert (second.hit, second.efficiency_mean) == (1.0, 1.0)


def test_the_summary_by_hand() -> None:
    """Mean, geometric mean, percentiles and minimum equal their textbook definitions."""
    values = [0.5, 1.0, 0.8, 0.9, 0.25, 0.95, 0.7]
    efficiency = summarize(np.array(values))
    assert efficiency.problems == 7
    assert efficiency.mean.value == pytest.approx(sum(values) / 7, rel=1e-14)
    assert efficiency.geomean.value == pytest.approx(math.prod(values) ** (1 / 7), rel=1e-12)
    for part, q in ((efficiency.p50, 50), (efficiency.p10, 10), (efficiency.p5, 5)):
        assert part.value == pytest.approx(percentile(values, q), rel=1e-14)
    assert efficiency.min == 0.25


def test_intervals_hold_the_value_and_are_reproducible() -> None:
    """Bootstrap intervals contain the value, have the theoretical width for a mean, and depend on the seed."""
    values = np.random.default_rng(3).beta(8, 2, 400)
    efficiency = summarize(values)
    for part in (efficiency.mean, efficiency.geomean, efficiency.p50, efficiency.p10, efficiency.p5):
        assert part.low <= part.value <= part.high
    half = 1.96 * float(values.std()) / 20
    assert efficiency.mean.low == pytest.approx(efficiency.mean.value - half, abs=0.1 * half)
    assert efficiency.mean.high == pytest.approx(efficiency.mean.value + half, abs=0.1 * half)
    assert efficiency == summarize(values)
    assert efficiency.mean != summarize(values, seed=1).mean


def test_one_problem_has_no_width() -> None:
    """For a single problem every figure and interval end is its efficiency."""
    result = summarize(np.array([0.75]))
    assert (result.mean.low, result.mean.value, result.mean.high) == (0.75, 0.75, 0.75)
    assert figures(result) == pytest.approx(dict.fromkeys(FIGURES, 0.75), rel=1e-14)


def test_figures_are_named_for_gates() -> None:
    """Every figure of the summary except the count has a name for gates."""
    names = [f"{name}_efficiency" for name in ("mean", "geomean", "p50", "p10", "p5", "min")]
    assert list(FIGURES) == names
    result = summarize(np.array([0.5, 1.0]))
    expected = [0.75, math.sqrt(0.5), 0.75, 0.55, 0.525, 0.5]
    assert figures(result) == pytest.approx(dict(zip(names, expected, strict=True)), rel=1e-12)
