"""Confidence intervals equal those of a plain bootstrap, and differences use the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from ckh.assess import intervals
from ckh.assess.intervals import difference, estimates, geomean_of, mean_of, percentile_of, ratio

RANDOM = np.random.default_rng(1)
FIRST = RANDOM.beta(8, 2, 137)
SECOND = np.clip(FIRST - RANDOM.normal(0.01, 0.02, 137), 0.01, 1)


def draws(problems: int, seed: int) -> np.ndarray:
    """Drawn problems of every resample, in the generator's documented order."""
    random, step = np.random.default_rng(seed), max(1, (1 << 21) // problems)
    parts = [random.integers(0, problems, (min(step, 2000 - start), problems)) for start in range(0, 2000, step)]
    return np.concatenate(parts)


def ends(values: np.ndarray) -> list[float]:
    """Central 95 % interval of the values."""
    return [float(item) for item in np.percentile(values, [2.5, 97.5])]


def test_figures_equal_a_plain_bootstrap() -> None:
    """Mean, geometric mean and percentiles of every resample, written out with NumPy, have the same intervals."""
    drawn = FIRST[draws(137, 5)]
    figures = {"mean": mean_of(FIRST), "geomean": geomean_of(FIRST)}
    figures |= {f"p{percent}": percentile_of(FIRST, percent) for percent in (0, 5, 10, 50, 100)}
    result = estimates(figures, 137, seed=5)
    expected = {"mean": drawn.mean(axis=1), "geomean": np.exp(np.log(drawn).mean(axis=1))}
    expected |= {f"p{percent}": np.percentile(drawn, percent, axis=1) for percent in (0, 5, 10, 50, 100)}
    for name, values in expected.items():
        assert [result[name].low, result[name].high] == pytest.approx(ends(values), rel=1e-12), name
    assert result["p10"].value == pytest.approx(np.percentile(FIRST, 10), rel=1e-14)


def test_percentiles_of_many_problems_are_found_near_their_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting individual draws only near the rank gives the same intervals."""
    many = np.random.default_rng(2).beta(8, 2, 5000)
    monkeypatch.setattr(intervals, "_RESAMPLES", 200)
    estimate = estimates({"p10": percentile_of(many, 10)}, 5000, seed=3)["p10"]
    random = np.random.default_rng(3)
    expected = np.percentile(many[random.integers(0, 5000, (200, 5000))], 10, axis=1)
    assert [estimate.low, estimate.high] == pytest.approx(ends(expected), rel=1e-12)


def test_differences_are_paired() -> None:
    """The interval of a difference uses the same draws, and is far narrower than that of independent draws."""
    drawn = draws(137, 0)
    result = estimates(
        {
            "mean": difference(mean_of(SECOND), mean_of(FIRST)),
            "p10": difference(percentile_of(SECOND, 10), percentile_of(FIRST, 10)),
            "ratio": ratio(mean_of(SECOND), mean_of(FIRST)),
            "alone": mean_of(SECOND),
        },
        137,
    )
    apart = SECOND[drawn].mean(axis=1) - FIRST[drawn].mean(axis=1)
    assert [result["mean"].low, result["mean"].high] == pytest.approx(ends(apart), rel=1e-10)
    tenth = np.percentile(SECOND[drawn], 10, axis=1) - np.percentile(FIRST[drawn], 10, axis=1)
    assert [result["p10"].low, result["p10"].high] == pytest.approx(ends(tenth), rel=1e-10)
    over = SECOND[drawn].mean(axis=1) / FIRST[drawn].mean(axis=1)
    assert [result["ratio"].low, result["ratio"].high] == pytest.approx(ends(over), rel=1e-10)
    width = {name: item.high - item.low for name, item in result.items()}
    assert width["mean"] < width["alone"] / 3


def test_parts_of_the_problems() -> None:
    """The mean over a subset uses its drawn problems; resamples without any are ignored."""
    inside = np.zeros(137, dtype=bool)
    inside[:2] = True
    estimate = estimates({"part": mean_of(np.where(inside, FIRST, np.nan), inside)}, 137)["part"]
    drawn = draws(137, 0)
    counts = np.array([[np.sum(item == number) for number in (0, 1)] for item in drawn])
    some = counts[counts.sum(axis=1) > 0]
    assert [estimate.low, estimate.high] == pytest.approx(ends(some @ FIRST[:2] / some.sum(axis=1)), rel=1e-12)
    assert estimate.value == pytest.approx(FIRST[:2].mean(), rel=1e-14)
    assert len(some) < len(drawn)
