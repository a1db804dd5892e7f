"""Answers joined with measured rows, to evaluate exactly what `ckh predict` prints: its pool, order and refusals.

A measured row has the best rank of the candidates that match its kernel's name (`KernelJoin`). Predicted times are
compared with the measured ones of the first kernels of each problem.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import estimates, mean_of
from ckh.assess.ranked_rows import RankedRows
from ckh.assess.winners import MISSING, WinnerPlaces, winner_rows
from ckh.errors import UsageError
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.answers.answer import interval_at
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.judging.calibrate import SHOWN
from ckh.learn.judging.calibrate import in_order as by_problem
from ckh.learn.models.calibration import COVERED
from ckh.learn.models.scoring import Remembered
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem

_AT_ONCE = 64  # answers in memory: each has indices of all candidates


@dataclass(frozen=True, slots=True)
class TimeErrors:
    """Comparison of predicted and measured times."""

    times: int
    """Number of measured times, of the first kernels of each problem."""
    median: float
    """Median of |predicted / measured - 1|."""
    covered: float | None
    """Share of a problem's times within the model's prediction interval, mean over problems; null: no interval."""
    covered_95: tuple[float, float] | None
    """95 % confidence interval of that share, by a bootstrap over problems; null: no interval."""
    wanted: float = COVERED
    """Nominal share."""

    def lines(self) -> list[str]:
        """Return sentences for the report."""
        said = [f"median error of {self.times} predicted times: {self.median:.1%}"]
        if self.covered is not None and self.covered_95 is not None:
            low, high = self.covered_95
            covered = f"{self.covered:.1%} ({low:.1%} - {high:.1%})"
            said.append(f"{covered} inside the prediction interval, nominal {self.wanted:.0%}")
        return said


@dataclass(frozen=True, slots=True, eq=False)
class TimeRatios:
    """Measured over predicted times of the first kernels of problems."""

    times: NDArray[np.float64]
    covered: NDArray[np.float64]


def predicted_speeds(
    model: Model, dataset: Dataset, score: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Predict speeds as `ckh predict` would, for the rows with a time; NaN without predictions or times."""
    tflops, first_tflops = np.full(len(dataset), np.nan), np.full(len(dataset.first_rows), np.nan)
    usable = np.flatnonzero(dataset.frame["tflops"].to_numpy(dtype=np.float64) > 0)
    if TFLOPS not in model.spec.targets or not len(usable):
        return tflops, first_tflops
    speed = score if model.spec.rank_by == TFLOPS else model.predict_dataset(dataset, TFLOPS)
    for group in by_problem(score[usable], dataset.problem_ids[usable]):
        rows = usable[group]
        speeds = model.speeds(score[rows], speed[rows], [dataset.problem(int(rows[0]))])
        assert speeds is not None
        tflops[rows], first_tflops[dataset.problem_ids[rows[0]]] = speeds, speeds[0]
    return tflops, first_tflops


def answered_ratios(model: Model, dataset: Dataset, ranked: RankedRows) -> TimeRatios:
    """Measured over predicted times of the first kernels of the model's answers, where measured."""
    measured = dataset.frame["tflops"].to_numpy(dtype=np.float64)
    shown = model.spec.op.training.timed or SHOWN
    rows = np.flatnonzero((ranked.place < shown) & (measured > 0) & np.isfinite(ranked.tflops))
    rows = rows[np.lexsort((ranked.place[rows], dataset.problem_ids[rows]))]
    times = ranked.tflops[rows] / measured[rows]
    if not model.bands or not len(rows):
        return TimeRatios(times, np.zeros(0))
    problems, starts = np.unique(dataset.problem_ids[rows], return_index=True)
    covered = []
    for problem, ratios in zip(problems, np.split(times, starts[1:]), strict=True):
        low, high = interval_at(model.bands, float(ranked.first_tflops[problem]))
        covered.append(float(np.mean((ratios >= low) & (ratios <= high))))
    return TimeRatios(times, np.array(covered))


def time_errors(ratios: Sequence[TimeRatios]) -> TimeErrors | None:
    """Summarize the ratios of all parts of a dataset; None if there are none."""
    time, covered = (np.concatenate([getattr(ratio, name) for ratio in ratios]) for name in ("times", "covered"))
    if not len(time):
        return None
    share = estimates({"": mean_of(covered)}, len(covered))[""] if len(covered) else None
    return TimeErrors(
        len(time),
        float(np.median(np.abs(1.0 / time - 1.0))),
        None if share is None else share.value,
        None if share is None else (share.low, share.high),
    )


def ranked_rows(model: Model, dataset: Dataset) -> RankedRows:
    """Join the model's answers for the problems of a dataset with its rows."""
    from pandas import factorize

    op, problems, problem_ids = dataset.op, dataset.problems(), dataset.problem_ids
    codes, names = factorize(dataset.frame["kernel"])
    join = KernelJoin(op, [str(name) for name in names])
    ranked = RankedRows(
        np.full(len(dataset), np.inf),
        np.full(len(problems), "", dtype=object),
        np.full(len(problems), "", dtype=object),
        np.full(len(dataset), np.nan),
        np.full(len(problems), np.nan),
    )
    order = np.argsort(problem_ids, kind="stable")
    rows_of = np.split(order, np.cumsum(np.bincount(problem_ids))[:-1])
    model.remembered = Remembered(_AT_ONCE)
    for start in range(0, len(problems), _AT_ONCE):
        answers = rankings_of(problems[start : start + _AT_ONCE], model)
        for number, (answer, rows) in enumerate(zip(answers, rows_of[start : start + _AT_ONCE], strict=True), start):
            if failure := answer.failure:
                ranked.refusal[number] = failure.message
                continue
            ranked.first[number] = op.kernels.name(answer.pool[answer.order[0]])
            place, tflops = _places(join, answer)
            ranked.place[rows], ranked.tflops[rows] = place[codes[rows]], tflops[codes[rows]]
            ranked.first_tflops[number] = np.nan if answer.tflops is None else answer.tflops[0]
    return ranked


def judged_rows(model: Model, dataset: Dataset, *, measured_alone: bool) -> tuple[RankedRows, TimeRatios]:
    """Rank the rows of a dataset with a model, and compute measured over predicted times of the first rows."""
    ranked = _measured_rows(model, dataset) if measured_alone else ranked_rows(model, dataset)
    return ranked, answered_ratios(model, dataset, ranked)


def _measured_rows(model: Model, dataset: Dataset) -> RankedRows:
    """Rank only the measured rows by the model's scores, with the predicted speeds."""
    scores = model.scores(dataset)
    tflops, first_tflops = predicted_speeds(model, dataset, scores)
    return replace(RankedRows.by_scores(dataset, scores), tflops=tflops, first_tflops=first_tflops)


def answering_model(problems: Sequence[Problem], arch: str, num_cus: int) -> Model:
    """Return the model with which `ckh predict` answers problems on a GPU, or a substitute."""
    answering = list(map(AnsweringModels(arch, num_cus).answering, problems))
    counter = Counter((model.path, model.spec.purpose, model.not_measured) for model in answering)
    if len(counter) > 1:
        names = ", ".join(f"{path} ({purpose}) {count}" for (path, purpose, _), count in counter.most_common())
        message = f"predict selects {len(counter)} models for these problems: {names}"
        raise UsageError(message, "name one with --model", code="several-models")
    return answering[0]


def first_kernels(model: Model, dataset: Dataset, count: int) -> list[tuple[str, ...]]:
    """Names of the first kernels of the model's answer for each problem of a dataset; empty if refused."""
    return [tuple(ranked.name for ranked in answer.best(count)) for answer in rankings_of(dataset.problems(), model)]


def _places(join: KernelJoin, answer: Ranking) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rank in an answer, infinite without one, and predicted speed of each measured kernel, shape (names,)."""
    position, code = join.pairs(answer.pool)
    of_position = np.full(len(answer.pool), np.inf)
    of_position[answer.order] = np.arange(len(answer.order))
    place = np.full(join.count, np.inf)
    np.minimum.at(place, code, of_position[position])
    tflops, is_known = np.full(join.count, np.nan), np.isfinite(place)
    if answer.tflops is not None:
        tflops[is_known] = answer.tflops[place[is_known].astype(np.intp)]
    return place, tflops


def ranked_winners(dataset: Dataset, model: Model) -> WinnerPlaces:
    """Rank the winners of a dataset among all candidates of their problems."""
    op = dataset.op
    winners = dataset.frame["kernel"].to_numpy(dtype=object)[winner_rows(dataset)]
    place = np.full(len(winners), MISSING, np.int64)
    first = np.full(len(winners), "", dtype=object)
    places: dict[int, tuple[Sequence[Kernel], dict[str, int]]] = {}
    for number, ranking in enumerate(rankings_of(dataset.contests(), model)):
        if id(ranking.pool) not in places:
            names = {op.kernels.name(kernel): index for index, kernel in enumerate(ranking.pool)}
            places[id(ranking.pool)] = ranking.pool, names
        order = dataset.tried(int(dataset.first_rows[number]), ranking.pool, ranking.order)
        if not len(order):
            continue
        first[number] = op.kernels.name(ranking.pool[order[0]])
        winner = places[id(ranking.pool)][1].get(winners[number])
        if winner is not None and (at := np.flatnonzero(order == winner)).size:
            place[number] = at[0]
    return WinnerPlaces(place, first)
