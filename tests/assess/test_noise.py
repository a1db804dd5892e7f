"""Repeat noise, ties and the ceiling, compared with plain loops over the measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.assess.metrics import Times, choices
from ckh.assess.noise import ceiling, repeat_noise, scored_again
from ckh.assess.ranked_rows import RankedRows
from ckh.assess.report import evaluate
from ckh.data.parts import in_memory
from tests.learn.conftest import build, kernels, problems, time_ms

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset

NOISE = 0.15
PROBLEMS = problems()[:6]
KERNELS = kernels()[:12]


def twice(drift: float = 0.0, seed: int = 0) -> Dataset:
    """Six problems with twelve kernels, measured twice with 15 % noise, the second time with a drift."""
    random = np.random.default_rng(seed)
    rows, both = [], []
    for problem in PROBLEMS:
        for kernel in KERNELS:
            ms = time_ms(problem, kernel)
            first, second = ms * np.exp(random.normal([0, drift], NOISE))
            both.append((first, second))
            rows.append((problem, kernel, float(np.sqrt(first * second))))
    made = build(rows)
    earlier, later = np.array(both).T
    return replace(made, frame=made.frame.assign(earlier_ms=earlier, later_ms=later))


def near_ratios(data: Dataset) -> list[np.ndarray]:
    """For each problem the deviations of the log ratios of kernels near the best from their median."""
    result = []
    for number in range(6):
        part = data.frame[data.problem_ids == number]
        part = part[part["latency_ms"] <= 1.5 * part["latency_ms"].min()]
        ratios = np.log(part["earlier_ms"] / part["later_ms"]).to_numpy()
        if len(ratios) >= 3:
            result.append(np.abs(ratios - np.median(ratios)))
    return result


@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_noise_excludes_drift(drift: float) -> None:
    """A drift of all times of a problem is not noise; the rest is, by a loop over the pairs."""
    data = twice(drift)
    noise = repeat_noise(data)
    assert noise is not None
    (device,) = noise.devices
    every = np.concatenate(near_ratios(data))
    assert (device.device, device.pairs) == ("a test", len(every))
    assert device.tolerance == pytest.approx(1.4826 * np.median(every), rel=1e-9)
    assert device.p90 == pytest.approx(np.percentile(every, 90), rel=1e-9)
    # Two times with 15 % noise each differ by 15 % times sqrt(2).
    assert device.tolerance == pytest.approx(NOISE * np.sqrt(2), rel=0.5)
    own = [1.4826 * np.median(near_ratio) for near_ratio in near_ratios(data) if len(near_ratio) >= 8]
    assert sorted(set(noise.tolerance.tolist()) - {device.tolerance}) == pytest.approx(sorted(own), rel=1e-9)


def test_data_without_repeats_have_no_noise() -> None:
    """Without repeated measurements there is neither noise nor a ceiling."""
    once = build([(problem, kernel, 1.0) for problem in PROBLEMS[:2] for kernel in KERNELS[:3]])
    assert repeat_noise(once) is None
    assert ceiling([scored_again(once, np.array([0, 3]), None)], "random") is None


def test_kernels_within_the_noise_are_ties() -> None:
    """A problem's own tolerance is used, even if below the default without repeats."""
    times = Times(np.array([0, 0, 1, 1]), np.array([1.0, 1.03, 1.0, 1.008]), np.full(4, 0.2), np.array([0.05, 0.002]))
    assert times.is_best().tolist() == [True, True, True, False]
    unknown = replace(times, tolerance=np.array([np.nan, 0.002]))
    assert unknown.is_best().tolist() == [True, True, True, False]


def test_the_ceiling_chooses_by_one_run_and_scores_in_the_other() -> None:
    """Mean over both directions, for the repeated measurement, the model and the base of the gap."""
    data = twice()
    model = np.random.default_rng(3).random(len(data))
    chosen = choices(model, data.problem_ids, 6)
    fixed = choices(np.tile(np.arange(12.0), 6), data.problem_ids, 6)
    result = ceiling([scored_again(data, chosen, fixed)], "fixed")
    assert result is not None
    frame = data.frame.assign(problem=data.problem_ids)
    repeated, of_model, base = [], [], []
    for number, part in frame.groupby("problem"):
        for made, scored in (("earlier_ms", "later_ms"), ("later_ms", "earlier_ms")):
            least = part[scored].min()
            repeated.append(least / part[scored].loc[part[made].idxmin()])
            of_model.append(least / part[scored].loc[chosen[number]])
            base.append(least / part[scored].loc[fixed[number]])
    ceil, mean, low = np.mean(repeated), np.mean(of_model), np.mean(base)
    assert (result.problems, result.baseline) == (6, "fixed")
    assert (result.repeated.value, result.model.value) == pytest.approx((ceil, mean), rel=1e-12)
    assert result.share.value == pytest.approx(mean / ceil, rel=1e-12)
    assert result.gap is not None
    assert result.gap.value == pytest.approx((mean - low) / (ceil - low), rel=1e-9)
    assert result.repeated.low <= ceil <= result.repeated.high <= 1


def test_partial_repeats_are_scored_by_the_later_times() -> None:
    """If slow kernels have one time only, the first leader is chosen and scored by the later times."""
    data = twice()
    best = data.frame.groupby(data.problem_ids)["latency_ms"].transform("min")
    is_slow = data.frame["latency_ms"] > 1.3 * best
    frame = data.frame.assign(latency_ms=np.where(is_slow, data.frame["latency_ms"], data.frame["later_ms"]))
    frame.loc[is_slow, ["earlier_ms", "later_ms"]] = np.nan
    some = replace(data, frame=frame)
    counts = (~is_slow).groupby(data.problem_ids).sum()
    known = np.flatnonzero(counts >= 2)
    result = ceiling([scored_again(some, np.zeros(6, dtype=np.int64), None)], "random")
    assert result is not None
    assert result.problems == len(known) < 7
    expected = []
    for number in known:
        part = frame[data.problem_ids == number]
        leader = part["earlier_ms"].idxmin()
        expected.append(part["latency_ms"].min() / part["later_ms"].loc[leader])
    assert result.repeated.value == pytest.approx(np.mean(expected), rel=1e-12)


def test_a_contender_measured_once_excludes_its_problem() -> None:
    """A choice between kernels with one and with two times cannot be scored."""
    data = twice()
    frame = data.frame.copy()
    rows = np.flatnonzero(data.problem_ids == 0)
    fastest = rows[np.argmin(frame["latency_ms"].to_numpy()[rows])]
    frame.loc[fastest, ["earlier_ms", "later_ms"]] = np.nan
    dataset = ceiling([scored_again(replace(data, frame=frame), np.arange(0, 72, 12), None)], "random")
    assert dataset is not None
    assert dataset.problems == 5


def test_the_report_has_both() -> None:
    """An evaluation reports the device's noise, uses it for hits, and starts the gap at random without learning."""
    data = twice()
    evaluation = evaluate(
        in_memory(data), lambda part: RankedRows.by_scores(part, -part.frame["latency_ms"].to_numpy())
    )
    assert [item.device for item in evaluation.noise] == ["a test"]
    assert evaluation.ceiling is not None
    assert evaluation.ceiling.baseline == "random kernel (expected)"
    assert evaluation.ceiling.model.value > evaluation.ceiling.repeated.value  # it saw both measurements
    assert all(choice.is_best for choice in evaluation.choices)
