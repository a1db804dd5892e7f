"""Intervals and verdicts of gains on a simulated device whose true gains are known."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from benchmarks.gain_intervals import simulated

RUNS = 40


@pytest.mark.parametrize(("shapes", "gain"), [(4, 1.0), (4, 1.05)])
def test_intervals_hold_the_true_gain(shapes: int, gain: float) -> None:
    """At least 92 % of them, and at most 5 % of kernels without a gain are called one, by binomial bounds."""
    of_shapes, totals, of_first = simulated(RUNS, shapes, gain)
    for counted in (of_shapes, totals):
        assert counted.stated > 0.6 * counted.possible
        assert counted.held >= binom.ppf(0.01, counted.stated, 0.92)
        most = binom.ppf(0.99, counted.possible, 0.05)
        assert (counted.called <= most) if gain == 1 else (counted.called > most)
    # By the first visit alone most intervals miss it, and chance is called a gain.
    assert of_first.held < 0.5 * of_first.stated
    assert of_first.called > 0.5 * of_first.possible
