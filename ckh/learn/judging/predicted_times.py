"""Errors of predicted times among the first kernels of each problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import estimates, mean_of
from ckh.learn.answers.answer import interval_at
from ckh.learn.judging.calibrate import SHOWN, in_order
from ckh.learn.models.calibration import COVERED
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.assess.ranked_rows import RankedRows
    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model


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
    for group in in_order(score[usable], dataset.problem_ids[usable]):
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
    for problem, some in zip(problems, np.split(times, starts[1:]), strict=True):
        low, high = interval_at(model.bands, float(ranked.first_tflops[problem]))
        covered.append(float(np.mean((some >= low) & (some <= high))))
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
