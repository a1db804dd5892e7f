"""Gains of tuning are ratios of measured times, weighted by counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ckh import GemmProblem
from ckh.shapes.layers import WeightedProblem
from ckh.tune.gains import MeasuredTime, compared, is_worth_it, ratio, whole

LARGE, SMALL = (
    WeightedProblem("gemm_universal", GemmProblem(64, 128, 32 * k, "fp32"), count, (f"layer{k}",), "here")
    for k, count in ((4, 80), (1, 3))
)
TIMES = {"a": MeasuredTime(4.0, 0.1), "b": MeasuredTime(2.0, 0.02), "c": MeasuredTime(8.0, 0.0)}


def test_the_gain_is_a_ratio_of_weighted_sums() -> None:
    """Its interval equals that of random times with these errors."""
    today, tuned, counts = (
        [MeasuredTime(4.0, 0.1), MeasuredTime(1.0, 0.2)],
        [MeasuredTime(2.0, 0.02), MeasuredTime(0.9, 0.05)],
        [80, 3],
    )
    result = ratio(today, tuned, counts)
    assert result.value == pytest.approx((80 * 4 + 3 * 1) / (80 * 2 + 3 * 0.9), rel=1e-12)
    random = np.random.default_rng(0)
    drawn = [
        sum(
            n * random.normal(measured_time.ms, measured_time.error_ms, 200_000)
            for n, measured_time in zip(counts, some, strict=True)
        )
        for some in (today, tuned)
    ]
    assert result.interval == pytest.approx(np.percentile(drawn[0] / drawn[1], [2.5, 97.5]), rel=2e-3)


def test_an_unchanged_kernel_gains_exactly_nothing() -> None:
    """Its time is the same on both sides, however uncertain."""
    time = MeasuredTime(4.0, 1.0)
    assert ratio([time], [time], [5]).interval == (1.0, 1.0)


def test_the_fastest_measured_kernel_is_compared_with_the_current_one() -> None:
    """A shape's share is of the time with current kernels; unmeasured shapes have no gain."""
    item = compared(LARGE, "a", TIMES)
    assert (item.kernel, item.best) == ("b", TIMES["b"])
    row = item.row(whole_ms=400.0)
    assert (row.gain, row.share, row.count, row.layers) == (2.0, 80 * 4.0 / 400.0, 80, ("layer4",))
    unmeasured = compared(SMALL, "d", TIMES).row(400.0)
    assert (unmeasured.gain, unmeasured.today_ms, unmeasured.latency_ms, unmeasured.share) == (None, None, 2.0, None)
    nothing = compared(SMALL, None, {}).row(400.0)
    assert (nothing.today, nothing.kernel, nothing.latency_ms) == (None, None, None)


def test_the_total_counts_shapes_with_both_times() -> None:
    """A shape without one of its times is left out."""
    both = compared(LARGE, "a", TIMES), compared(SMALL, "c", TIMES), compared(SMALL, "d", TIMES)
    result = whole(both)
    assert result is not None
    today, tuned, gain = result
    assert (today, tuned) == (80 * 4.0 + 3 * 8.0, 80 * 2.0 + 3 * 2.0)
    assert gain.value == today / tuned
    assert whole([compared(SMALL, "d", TIMES)]) is None


@pytest.mark.parametrize(("before", "error", "expected"), [(1.2, 0.01, True), (1.2, 0.2, False), (1.005, 0.0, False)])
def test_gains_below_the_noise_are_not_worth_it(before: float, error: float, expected: bool) -> None:
    """Only a gain above both noise and one percent counts."""
    result = ratio([MeasuredTime(before, error)], [MeasuredTime(1.0, 0.0)], [1])
    assert is_worth_it(result) is expected
    assert math.isclose(result.value, before)
