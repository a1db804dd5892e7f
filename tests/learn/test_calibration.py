"""Speeds agree with the order: they fall with the score, are right in the median, and have an interval that holds."""

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
from ckh.learn.answer import rank, rank_many
from ckh.learn.artifact import load_model
from ckh.learn.calibrate import calibrate
from ckh.learn.calibration import CALIBRATION_NAME, FIRST, Calibration, read_calibration
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.paths import data_dir

if TYPE_CHECKING:
    from pathlib import Path

TABLE = Calibration((0.0, 0.5, 2.0), (1.0, 0.9, 0.3), 1.1, 0.8, 1.3, 50)
GEMM = data_dir("models") / "gemm_universal_fp32_host"


def by_hand(table: Calibration, score: list[float], tflops: list[float]) -> list[float]:
    """The same, number by number."""

    def share(gap: float) -> float:
        above = bisect_right(table.gap, gap)
        if above == len(table.gap):
            return table.share[-1]
        (a, b), (high, low) = table.gap[above - 1 : above + 1], table.share[above - 1 : above + 1]
        return max(high - (high - low) * ((gap - a) / (b - a)), low)

    shares = [share(score[0] - one) for one in score]
    level = math.fsum(speed / one for speed, one in zip(tflops[:FIRST], shares[:FIRST], strict=True))
    return [level / min(FIRST, len(score)) * table.scale * one for one in shares]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_speeds_are_those_of_the_table(count: int) -> None:
    """The level is that of the first kernels, and the others have their share of it, which never rises."""
    draw = np.random.default_rng(count)
    score, tflops = -np.sort(draw.uniform(0, 3, count)), draw.uniform(1, 9, count)
    found = TABLE.speeds(score, tflops)
    np.testing.assert_allclose(found, by_hand(TABLE, score.tolist(), tflops.tolist()), rtol=1e-14)
    assert (np.diff(found) <= 0).all()


def held_out(problems: int, seed: int) -> tuple[Any, ...]:
    """Scores, told and measured speeds of 30 kernels for each problem: told ones are 20 % too low, and both err."""
    draw = np.random.default_rng(seed)
    problem = np.repeat(np.arange(problems), 30)
    score = draw.uniform(-1, 0, len(problem))
    level = draw.uniform(0.5, 2, problems)[problem]
    true = level * np.exp(score)
    return score, 0.8 * true * draw.lognormal(0, 0.1, len(true)), true * draw.lognormal(0, 0.05, len(true)), problem


def test_a_calibration_holds_for_problems_that_it_is_not_from() -> None:
    """Shares, scale and interval are found: nine in ten times of other problems lie within."""
    made = calibrate(*held_out(400, 1))
    assert made is not None
    assert made.share[-1] == pytest.approx(math.exp(-1), abs=0.05)
    score, told, measured, problem = held_out(400, 2)
    ratios = []
    for number in range(400):
        rows = np.flatnonzero(problem == number)
        rows = rows[np.argsort(-score[rows])]
        ratios.append((made.speeds(score[rows], told[rows]) / measured[rows])[:5])
    time = np.concatenate(ratios)
    assert np.median(time) == pytest.approx(1, abs=0.02)
    assert np.mean((time >= made.low) & (time <= made.high)) == pytest.approx(0.9, abs=0.02)


def test_too_few_problems_make_no_calibration() -> None:
    """Of a dozen problems nobody knows what one in twenty does."""
    assert calibrate(*held_out(12, 1)) is None


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    """What is written is read back; a folder without one has none, and a damaged one is refused."""
    assert read_calibration(tmp_path) is None
    (tmp_path / CALIBRATION_NAME).write_text(TABLE.to_json())
    assert read_calibration(tmp_path) == TABLE
    broken = json.loads(TABLE.to_json()) | {"share": [1.0, 0.3, 0.9]}
    (tmp_path / CALIBRATION_NAME).write_text(json.dumps(broken))
    with pytest.raises(ModelError, match="falling shares"):
        read_calibration(tmp_path)


@pytest.mark.parametrize("wrong", [{"scale": math.nan}, {"low": 0.0}, {"high": 0.1}, {"gap": (0.0, 0.0, 1.0)}])
def test_a_wrong_calibration_is_refused(wrong: dict[str, Any]) -> None:
    """Numbers that are not finite, not positive or not in order."""
    with pytest.raises(DataError, match="a calibration is"):
        replace(TABLE, **wrong)


def test_the_order_and_the_speeds_of_a_model_agree(tmp_path: Path) -> None:
    """Speeds fall with the place; few kernels have the figures that they have among all; without a file, as told."""
    problems = [GemmProblem(37 * i + 1, 8 * i, 16 * i) for i in range(1, 30)]
    model = load_model(GEMM)
    whole = rank_many(problems, None, model)
    for problem, ranked in zip(problems, whole, strict=True):
        speeds = [one.tflops or 0.0 for one in ranked]
        assert speeds == sorted(speeds, reverse=True)
        assert rank(problem, 1, load_model(GEMM)) == ranked[:1]
    assert rank_many(problems, 1, model) == [ranked[:1] for ranked in whole]
    shutil.copytree(GEMM, tmp_path / "model")
    (tmp_path / "model" / CALIBRATION_NAME).unlink()
    told = rank_many(problems, None, load_model(tmp_path / "model"))
    assert [[one.kernel for one in ranked] for ranked in told] == [[one.kernel for one in ranked] for ranked in whole]
    assert any(a.tflops != b.tflops for a, b in zip(told[0], whole[0], strict=True))
