"""Paired intervals against closed forms and plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from ckh.assess.paired import paired_interval


def test_the_mean_of_differences_has_its_normal_interval() -> None:
    """For the mean of many problems it is 1.96 standard errors of the differences, whatever both have in common."""
    random = np.random.default_rng(3)
    before = random.uniform(0.2, 1.0, 4000)
    gain = random.normal(0.01, 0.02, 4000)
    low, high = paired_interval(np.mean, before, before + gain)
    error = gain.std() / np.sqrt(len(gain))
    assert (low, high) == pytest.approx((gain.mean() - 1.96 * error, gain.mean() + 1.96 * error), abs=0.15 * error)


def test_the_same_problems_are_drawn_for_both() -> None:
    """A constant gain has no uncertainty at all, though the problems differ much."""
    before = np.linspace(0.1, 0.9, 50)
    assert paired_interval(np.median, before, before + 0.05) == pytest.approx((0.05, 0.05))


def test_draws_in_parts_are_the_draws_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many values are drawn at a time changes nothing but memory: the interval covers the same share."""
    random = np.random.default_rng(5)
    before, after = random.uniform(size=(2, 300))
    whole = paired_interval(np.mean, before, after)
    monkeypatch.setattr("ckh.assess.paired._DRAWN_VALUES", 7 * 300)
    assert paired_interval(np.mean, before, after) == pytest.approx(whole, abs=1e-12)
