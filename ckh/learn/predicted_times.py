"""How far predicted times lie from measured ones, among the kernels of each problem that people look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.learn.calibrate import SHOWN, in_order
from ckh.learn.calibration import COVERED
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.artifact import Model


@dataclass(frozen=True, slots=True)
class TimeErrors:
    """Predicted against measured times.

    Attributes:
        times: how many: the measured times of the first kernels of each problem.
        median: of |predicted / measured - 1|.
        covered: the share of measured times within the model's intervals; None if it has none.
        wanted: the share that is to be.
    """

    times: int
    median: float
    covered: float | None
    wanted: float = COVERED

    def __str__(self) -> str:
        """In words."""
        interval = "" if self.covered is None else f"; {self.covered:.1%} within the interval, {self.wanted:.0%} wanted"
        return f"predicted times lie {self.median:.1%} from the {self.times} measured ones in the median{interval}"


def time_ratios(model: Model, dataset: Dataset, score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Measured over predicted times of the first kernels of each problem; none if the model tells no times.

    The first kernels are those of the measured ones that the model places first.

    Args:
        model: what is judged.
        dataset: whole problems.
        score: the model's, shape (rows,).

    Raises:
        ModelError: a file of the model is damaged.
        DataError: a column is missing.
    """
    if TFLOPS not in model.spec.targets:
        return np.zeros(0)
    told = score if model.spec.rank_by == TFLOPS else model.predict_dataset(dataset, TFLOPS)
    measured = dataset.frame["tflops"].to_numpy(dtype=np.float64)
    usable = np.flatnonzero(measured > 0)
    ratios = [np.zeros(0)]
    for rows in in_order(score[usable], dataset.problem_ids[usable]) if len(usable) else ():
        chosen = usable[rows]
        speeds = model.speeds(score[chosen], told[chosen])
        assert speeds is not None
        ratios.append(speeds[:SHOWN] / measured[chosen[:SHOWN]])
    return np.concatenate(ratios)


def time_errors(model: Model, time: NDArray[np.float64]) -> TimeErrors | None:
    """The errors that ratios show (`time_ratios`); None if there are none."""
    if not len(time):
        return None
    found = model.calibration
    covered = None if found is None else float(np.mean((time >= found.low) & (time <= found.high)))
    return TimeErrors(len(time), float(np.median(np.abs(1.0 / time - 1.0))), covered)
