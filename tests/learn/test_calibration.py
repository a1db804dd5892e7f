"""Calibration: speeds decrease with rank, are unbiased in the median, and have a valid prediction interval."""

from __future__ import annotations

import json
import math
import shutil
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.errors import DataError, ModelError
from ckh.learn.answers.answer import interval_at
from ckh.learn.answers.api import rank, rank_many
from ckh.learn.judging.calibrate import _bands, calibrate
from ckh.learn.models.artifact import load_model
from ckh.learn.models.calibration import CALIBRATION_NAME, FIRST, Calibration, read_calibration
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.hostmodels import GEMM
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

BANDS = ((0.0, 0.6, 1.5), (1.0, 0.8, 1.3))
TABLE = Calibration((0.0, 0.5, 2.0), (1.0, 0.9, 0.3), 1.1, BANDS, 50)


def by_hand(table: Calibration, score: list[float], tflops: list[float]) -> list[float]:
    """The same, number by number."""

    def share(gap: float) -> float:
        above = bisect_right(table.gap, gap)
        if above == len(table.gap):
            return table.share[-1]
        (a, b), (high, low) = table.gap[above - 1 : above + 1], table.share[above - 1 : above + 1]
        return max(high - (high - low) * ((gap - a) / (b - a)), low)

    shares = [share(score[0] - item) for item in score]
    level = math.fsum(speed / share for speed, share in zip(tflops[:FIRST], shares[:FIRST], strict=True))
    return [level / min(FIRST, len(score)) * table.scale * share for share in shares]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_speeds_follow_the_table(count: int) -> None:
    """The level is that of the first kernels, and the others have a decreasing share of it."""
    draw = np.random.default_rng(count)
    score, tflops = -np.sort(draw.uniform(0, 3, count)), draw.uniform(1, 9, count)
    result = TABLE.speeds(score, tflops)
    np.testing.assert_allclose(result, by_hand(TABLE, score.tolist(), tflops.tolist()), rtol=1e-14)
    assert (np.diff(result) <= 0).all()


def held_out(problems: int, seed: int) -> tuple[Any, ...]:
    """Scores, predicted and measured speeds of 30 kernels for each problem.

    Predicted speeds are 20 % too low; errors of slow problems are four times as large as those of fast ones.
    """
    draw = np.random.default_rng(seed)
    problem = np.repeat(np.arange(problems), 30)
    score = draw.uniform(-1, 0, len(problem))
    level = draw.uniform(0.5, 2, problems)
    true = level[problem] * np.exp(score)
    off = draw.lognormal(0, np.where(level < 1, 0.2, 0.05))[problem]
    return (
        score,
        0.8 * true * off * draw.lognormal(0, 0.05, len(true)),
        true * draw.lognormal(0, 0.03, len(true)),
        problem,
    )


@pytest.mark.parametrize("speeds_order", [False, True])
def test_a_calibration_is_valid_for_held_out_problems(*, speeds_order: bool) -> None:
    """Shares, scale and intervals are recovered: they cover nine in ten times of other problems, slow and fast."""
    score, told, measured, problem = held_out(1000, 1)
    made = calibrate(None if speeds_order else score, told, measured, problem)
    assert made is not None
    assert (made.share == ()) if speeds_order else made.share[-1] == pytest.approx(math.exp(-1), abs=0.05)
    score, told, measured, problem = held_out(1000, 2)
    by = told if speeds_order else score
    times, within, first = [], [], []
    for number in range(1000):
        rows = np.flatnonzero(problem == number)
        rows = rows[np.argsort(-by[rows])]
        speeds = made.speeds(by[rows], told[rows])
        times.append((speeds / measured[rows])[:5])
        low, high = interval_at(made.bands, speeds[0])
        within.append(np.mean((times[-1] >= low) & (times[-1] <= high)))
        first.append(speeds[0])
    assert np.median(np.concatenate(times)) == pytest.approx(1, abs=0.03)
    is_slow = np.array(first) < made.bands[2][0]
    for part in (is_slow, ~is_slow):
        assert np.mean(np.array(within)[part]) == pytest.approx(0.9, abs=0.025)
    widths = [high / low for _, low, high in made.bands]
    assert len(widths) == 4
    assert widths[0] > 1.3 * widths[-1]


def test_an_interval_depends_on_the_speed() -> None:
    """A band applies from its speed on; below all bands the first applies."""
    intervals = [interval_at(BANDS, speed) for speed in (0.0, 0.99, 1.0, 7.0)]
    assert intervals == [(0.6, 1.5), (0.6, 1.5), (0.8, 1.3), (0.8, 1.3)]


def test_few_problems_widen_the_interval() -> None:
    """Conformal quantiles of 20 problems: 95 % becomes 95 % x 21/20 = 99.75 %, and 0.25 % at the other end."""
    times = [np.array([float(number)]) for number in range(1, 21)]
    ((start, low, high),) = _bands(np.ones(20), times)
    assert (start, low, high) == pytest.approx((0.0, 1 + 19 * 0.0025, 1 + 19 * 0.9975))


def test_too_few_problems_make_no_calibration() -> None:
    """A dozen problems do not determine a 5 % quantile."""
    assert calibrate(*held_out(12, 1)) is None


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    """A calibration is read back from its file; a missing file gives None, and a damaged one is refused."""
    assert read_calibration(tmp_path) is None
    (tmp_path / CALIBRATION_NAME).write_text(TABLE.to_json())
    assert read_calibration(tmp_path) == TABLE
    broken = json.loads(TABLE.to_json()) | {"share": [1.0, 0.3, 0.9]}
    (tmp_path / CALIBRATION_NAME).write_text(json.dumps(broken))
    with expect_refusal(ModelError, "bad-field"):
        read_calibration(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scale": math.nan},
        {"gap": (0.0, 0.0, 1.0)},
        {"bands": ()},
        {"bands": ((0.0, 0.0, 1.0),)},
        {"bands": ((0.0, 1.1, 0.9),)},
        {"bands": ((0.1, 0.9, 1.1),)},
        {"bands": ((0.0, 0.9, 1.1), (0.0, 0.9, 1.1))},
    ],
)
def test_a_wrong_calibration_is_refused(wrong: dict[str, Any]) -> None:
    """Numbers that are not finite, not positive or out of order."""
    with expect_refusal(DataError, "bad-field", "calibration"):
        replace(TABLE, **wrong)


@pytest.mark.slow
def test_order_and_speeds_of_a_model_are_consistent(host_models: Path, tmp_path: Path) -> None:
    """Speeds decrease with rank, also for few kernels; without a file they are as predicted."""
    problems = [GemmProblem(37 * i + 1, 8 * i, 16 * i) for i in range(1, 30)]
    model = load_model(host_models / GEMM)
    whole = rank_many(problems, None, model)
    for problem, ranked in zip(problems, whole, strict=True):
        speeds = [candidate.tflops or 0.0 for candidate in ranked]
        assert speeds == sorted(speeds, reverse=True)
        assert rank(problem, 1, load_model(host_models / GEMM)) == ranked[:1]
    assert rank_many(problems, 1, model) == [ranked[:1] for ranked in whole]
    shutil.copytree(host_models / GEMM, tmp_path / "model")
    (tmp_path / "model" / CALIBRATION_NAME).unlink()
    told = rank_many(problems, None, load_model(tmp_path / "model"))
    assert [[candidate.kernel for candidate in ranked] for ranked in told] == [
        [candidate.kernel for candidate in ranked] for ranked in whole
    ]
    assert any(a.tflops != b.tflops for a, b in zip(told[0], whole[0], strict=True))
