"""Predicted gains: by models that have not seen the shape, with intervals from their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh import GemmProblem
from ckh.data.dataset import Dataset
from ckh.learn.models.calibration import Calibration
from ckh.learn.training.train import HeldOut, held_out, train
from ckh.ops.grouped_conv.kernel import kernel_name, parse_kernel_name
from ckh.problems import Direction
from ckh.shapes.layers import WeightedProblem
from ckh.training import TrainOptions
from ckh.tune.gains import MeasuredRun, OwnTime, PredictedGain, Ratio, tuned_shapes
from ckh.tune.predicted import (
    by_model,
    held_out_choices,
    held_out_efficiency,
    over_tables,
    predicted_ratio,
    predicted_total,
)
from tests.learn.conftest import TREES, kernels, measured, problems, saved, time_ms

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.base import Problem


def test_intervals_contain_nine_of_ten_gains() -> None:
    """For normal errors of eight shapes with a bias, the gain of a ninth is in the interval with 90 % probability."""
    random, inside, centers = np.random.default_rng(1), 0, []
    for _ in range(4000):
        *errors, actual = random.normal(0.05, 0.1, 9)
        ratio = predicted_ratio(0.2, errors)
        assert ratio is not None
        inside += ratio.interval[0] <= np.exp(0.2 + actual) <= ratio.interval[1]
        centers.append(np.log(ratio.value))
    assert inside / 4000 == pytest.approx(0.9, abs=0.015)
    assert np.mean(centers) == pytest.approx(0.25, abs=0.003)


def test_two_errors_are_too_few() -> None:
    """There is no interval, and so no prediction."""
    assert predicted_ratio(0.2, [0.1, 0.2]) is None


def test_choices_are_compared_with_current_kernels() -> None:
    """The best score of a problem is chosen; gain and error are from the calibrated speeds and the measured times."""
    data = measured().valid()
    rows = HeldOut(data, np.random.default_rng(3).normal(size=len(data)))
    speeds = Calibration((0.0, 1.0, 2.0), (1.0, 0.5, 0.2), 1.0, ((0.0, 1.0, 1.0),), 14)
    names, texts = data.frame["kernel"].to_numpy(), np.array([problem.canonical() for problem in data.problems()])
    of_row, ms = texts[data.problem_ids], data.frame["latency_ms"].to_numpy()
    today = {text: names[of_row == text][0] for text in texts}
    today[texts[2]] = "never measured"
    first = np.flatnonzero(of_row == texts[0])
    today[texts[0]] = names[first[np.argmax(rows.score[first])]]
    result = {held_out_choice.problem: held_out_choice for held_out_choice in held_out_choices(rows, speeds, today)}
    assert set(result) == set(texts) - {texts[2]}
    assert (result[texts[0]].kernel, result[texts[0]].error) == (today[texts[0]], None)
    for text in texts[3:]:
        of = np.flatnonzero(of_row == text)
        best, now = of[np.argmax(rows.score[of])], of[0]
        choice = result[text]
        assert (choice.kernel, choice.today_ms) == (names[best], ms[now])
        speed = np.interp(rows.score[best] - rows.score[now], [0, 1, 2], [1, 0.5, 0.2])
        assert choice.log_gain == pytest.approx(-np.log(speed))
        if choice.error is not None:
            assert np.exp(choice.log_gain + choice.error) == pytest.approx(ms[now] / ms[best])


@pytest.mark.slow
def test_measured_and_other_shapes_are_predicted(tmp_path: Path) -> None:
    """Also a shape without measurements; predictions agree with the formula of the times, within their intervals."""
    data, left = measured(), problems()[3]
    known = Dataset(data.frame[[data.problem(row) != left for row in range(len(data))]].reset_index(drop=True))
    today = {problem: kernels(ndim=problem.ndim)[0] for problem in problems()}
    named: dict[Problem, str] = {item: kernel_name(kernel) for item, kernel in today.items()}
    named[problems(Direction.BWD_DATA)[0]] = "of another direction, for which there is no model"
    options = TrainOptions(folds=4, early_stopping=5, params=TREES)
    rows = held_out(known, options)
    assert rows is not None
    result = by_model(known, rows, saved(tmp_path / "model"), named)
    share = held_out_efficiency(rows)
    targets = train(known, options, lambda _steps, _text: None).targets
    assert share.value == pytest.approx(targets["rank"].oof_mean_efficiency)
    assert share.low < share.value < share.high
    timed = [problem for problem in today if problem.canonical() in result]
    assert left in timed
    assert len(timed) > len(today) / 2  # a few current kernels have a wrong result
    inside = 0
    for problem in timed:
        predicted_gain = result[problem.canonical()]
        chosen = parse_kernel_name(predicted_gain.kernel)
        assert predicted_gain.gain is not None
        low, high = predicted_gain.gain.interval
        assert low <= predicted_gain.gain.value <= high
        inside += low <= time_ms(problem, today[problem]) / time_ms(problem, chosen) <= high
    assert inside / len(timed) > 0.7  # 0.9 on average


def test_gains_over_tables_are_ratios_to_predicted_times() -> None:
    """The longest predicted time gives the lowest gain; the same kernel gains nothing."""
    answers = [
        {"problem": name, "kernels": [{"kernel": kernel, "latency_ms": ms}], "predicted_interval": [0.8, 1.25]}
        for name, kernel, ms in (("p", "a", 2.0), ("q", "b", 3.0), ("r", "a", None), ("s", "a", 1.0))
    ]
    result = over_tables(answers, {"p": OwnTime("b", 4.0), "q": OwnTime("b", 9.0), "r": OwnTime("b", 1.0)})
    assert result == {
        "p": PredictedGain("a", 4.0, Ratio(2.0, (1.6, 2.5))),
        "q": PredictedGain("b", 9.0, Ratio(1.0, (1.0, 1.0))),
        "r": PredictedGain("a"),
        "s": PredictedGain("a"),
    }


def test_the_total_is_weighted_by_time() -> None:
    """Its interval is reached if all shapes are at the same end of theirs; shapes without prediction do not count."""
    gains = {
        2: PredictedGain("a", 3.0, Ratio(1.5, (1.0, 2.0))),
        5: PredictedGain("b", 1.0, Ratio(1.0, (0.5, 2.0))),
        9: PredictedGain("c"),
    }
    problems = {count: GemmProblem(64, 128, 32 * count, "fp32") for count in (2, 5, 7, 9)}
    predicted = {problems[count].canonical(): gain for count, gain in gains.items()}
    listed = [WeightedProblem("gemm_universal", problem, count, (), "here") for count, problem in problems.items()]
    shapes = tuned_shapes(listed, {}, {}, MeasuredRun(), {}, predicted)
    assert [shape.predicted_gain for shape in shapes] == [1.5, 1.0, None, None]
    ratio = predicted_total(shapes, predicted)
    assert ratio is not None
    assert ratio.value == pytest.approx((2 * 3 + 5 * 1) / (2 * 2 + 5 * 1))
    assert ratio.interval == pytest.approx(((2 * 3 + 5) / (2 * 3 + 5 * 2), (2 * 3 + 5) / (2 * 1.5 + 5 * 0.5)))
    assert predicted_total(shapes, {}) is None
