"""Predicted gain of kernels over today's, with prediction intervals.

A measured shape is predicted by models that have not seen it, so that the prediction can be compared with its measured
gain. Their errors give the intervals, also of shapes that were not measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import estimates, mean_of
from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.learn.judging.calibrate import relative_speeds
from ckh.tune.gains import SAME_KERNEL, PredictedGain, Ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from ckh.assess.intervals import Estimate
    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.calibration import Calibration
    from ckh.learn.training.train import HeldOut
    from ckh.ops.base import Problem
    from ckh.tune.gains import OwnTime, TunedShape

_COVERED = 0.9
_FEWEST_ERRORS = 3  # minimum for an interval


@dataclass(frozen=True, slots=True)
class HeldOutChoice:
    """The kernel that models without measurements of a shape choose for it."""

    problem: str
    kernel: str
    today_ms: float
    log_gain: float  # logarithm of the predicted gain
    error: float | None  # logarithm of measured over predicted gain; None: it is today's kernel


def held_out_efficiency(rows: HeldOut) -> Estimate:
    """Mean efficiency of the choices for shapes that the folds' models have not seen, with its 95 % interval."""
    times = times_of(rows.dataset)
    efficiency = times.efficiency()[choices(rows.score, times.problem, times.count)]
    return estimates({"": mean_of(efficiency)}, len(efficiency))[""]


def by_model(measured: Dataset, rows: HeldOut, folder: Path, today: Mapping[Problem, str]) -> dict[str, PredictedGain]:
    """Predicted gains of the choices of a model, by canonical text of the shape; without those that it cannot predict.

    `measured` are the rows that the model in the folder was trained on, `rows` those scored by its folds.
    """
    from ckh.learn.models.artifact import load_model, wanted_for

    names = {problem.canonical(): name for problem, name in today.items()}
    tflops = rows.dataset.frame["tflops"].to_numpy(dtype=np.float64)
    speeds = relative_speeds(rows.score, tflops, rows.dataset.problem_ids)
    chosen = list(held_out_choices(rows, speeds, names))
    errors = {choice.problem: choice.error for choice in chosen if choice.error is not None}
    gains = {}
    for choice in chosen:
        others = [error for problem, error in errors.items() if problem != choice.problem]
        gain = SAME_KERNEL if choice.error is None else predicted_ratio(choice.log_gain, others)
        if gain is not None:
            gains[choice.problem] = PredictedGain(choice.kernel, choice.today_ms, gain)
    known = {problem.canonical() for problem in measured.problems()}
    kinds = {wanted_for(problem, measured.arch) for problem in measured.problems()}  # what the model is for
    left = {
        problem: name
        for problem, name in today.items()
        if problem.canonical() not in known and wanted_for(problem, measured.arch) in kinds
    }
    return gains | dict(_not_measured(load_model(folder), left, speeds, list(errors.values())))


def held_out_choices(rows: HeldOut, speeds: Calibration, today: Mapping[str, str]) -> Iterator[HeldOutChoice]:
    """Choices for the shapes whose kernel of today was measured."""
    times, names = times_of(rows.dataset), rows.dataset.frame["kernel"].to_numpy()
    problems = rows.dataset.problems()
    best = choices(rows.score, times.problem, len(problems))
    place_of = {pair: row for row, pair in enumerate(zip(times.problem.tolist(), names, strict=True))}
    for number, problem in enumerate(problems):
        text, place = problem.canonical(), int(best[number])
        now = place_of.get((number, today.get(text)))
        if now is None:
            continue
        today_ms, log_gain = float(times.latency_ms[now]), _log_gain(speeds, rows.score[place], rows.score[now])
        error = None if place == now else math.log(today_ms / times.latency_ms[place]) - log_gain
        yield HeldOutChoice(text, names[place], today_ms, log_gain, error)


def _log_gain(speeds: Calibration, best: float, now: float) -> float:
    """Logarithm of the predicted gain of the kernel with the best score over one with another score."""
    return -math.log(float(speeds.shares(np.array([max(best - now, 0.0)]))[0]))


def predicted_ratio(log_gain: float, errors: Sequence[float]) -> Ratio | None:
    """The gain with its 90 % prediction interval; None for too few errors."""
    from scipy.special import stdtrit

    count = len(errors)
    if count < _FEWEST_ERRORS:
        return None
    center = log_gain + float(np.mean(errors))
    quantile = float(stdtrit(count - 1, (1 + _COVERED) / 2))
    half = quantile * float(np.std(errors, ddof=1)) * math.sqrt(1 + 1 / count)
    return Ratio(math.exp(center), (math.exp(center - half), math.exp(center + half)))


def _not_measured(
    model: Model, today: Mapping[Problem, str], speeds: Calibration, errors: Sequence[float]
) -> Iterator[tuple[str, PredictedGain]]:
    """Predicted gains of shapes that a model has not seen."""
    from ckh.learn.answers.api import rank_many

    for (problem, now), ranked in zip(today.items(), rank_many(list(today), 1, model), strict=True):
        if not ranked or ranked[0].latency_ms is None:
            continue
        best, run, best_ms = ranked[0], ranked[0].padded or problem, ranked[0].latency_ms
        scores = model.predict(run, [model.spec.op.kernels.parse(now), best.kernel], model.spec.rank_by)
        log_gain = _log_gain(speeds, scores[1], scores[0])
        gain = SAME_KERNEL if best.name == now else predicted_ratio(log_gain, errors)
        if gain is not None:
            yield problem.canonical(), PredictedGain(best.name, best_ms * gain.value, gain)


def over_tables(answers: Sequence[Mapping[str, Any]], tables: Mapping[str, OwnTime]) -> dict[str, PredictedGain]:
    """Choices by canonical text of the shape, with predicted gains over the kernels of the consumer's own tables."""
    gains = {}
    for answer in answers:
        table, best = tables.get(answer["problem"]), next(iter(answer["kernels"]), None)
        if best is None:
            continue
        name, interval = str(best["kernel"]), answer["predicted_interval"]
        if table is None or not table.ms:
            gains[answer["problem"]] = PredictedGain(name)
        elif name == table.kernel:
            gains[answer["problem"]] = PredictedGain(name, table.ms, SAME_KERNEL)
        elif not best["latency_ms"] or not interval:
            gains[answer["problem"]] = PredictedGain(name)
        else:
            gain, (low, high) = table.ms / best["latency_ms"], interval
            if not all(0 < value < math.inf for value in (gain, low, high)):
                raise ValueError("a time that is not positive")
            gains[answer["problem"]] = PredictedGain(name, table.ms, Ratio(gain, (gain / high, gain / low)))
    return gains


def predicted_total(shapes: Sequence[TunedShape], predicted: Mapping[str, PredictedGain]) -> Ratio | None:
    """Predicted gain of all shapes that have one, and no measured gain, weighted by count.

    The interval also holds if the errors of all shapes are equal.
    """
    gains = []
    for shape in shapes:
        expected = predicted.get(shape.problem)
        if shape.gain is None and expected is not None and expected.gain is not None:
            gains.append((shape.count * expected.today_ms, expected.gain))
    if not gains:
        return None
    before = sum(ms for ms, _ in gains)
    value, low, high = (before / sum(ms / (gain.value, *gain.interval)[end] for ms, gain in gains) for end in range(3))
    return Ratio(value, (low, high))
