"""Making a calibration from what the models of folds predict of problems that they have not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.learn.calibration import COVERED, Calibration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_ROWS = 33  # of the table
SHOWN = 5  # kernels whose times people look at: the interval is theirs
_LEAST_SHARE = 1e-3
_FEWEST = 20  # problems: fewer say nothing of what 5 % lie above


def calibrate(score: Floats, told: Floats, tflops: Floats, problem: NDArray[np.int64]) -> Calibration | None:
    """The calibration of held-out rows; None for too few problems.

    The shares are an isotonic regression of log(TFLOPS / best TFLOPS of the problem), the better kernels weighing more.
    The interval has the quantiles of measured over predicted time among the first kernels of each problem, so that it
    holds that share of the times of further problems, were these drawn as the others (split conformal prediction).

    Args:
        score: what orders kernels, shape (rows,), by models that have not seen the row's problem.
        told: the speeds that such models tell, shape (rows,).
        tflops: the measured ones, shape (rows,).
        problem: number of each row's problem, shape (rows,).
    """
    from sklearn.isotonic import IsotonicRegression

    usable = np.isfinite(score) & np.isfinite(told) & (told > 0) & (tflops > 0)
    score, told, tflops, problem = score[usable], told[usable], tflops[usable], problem[usable]
    groups = list(in_order(score, problem))
    if len(groups) < _FEWEST:
        return None
    gap, best = np.empty(len(score)), np.empty(len(score))
    for rows in groups:
        gap[rows], best[rows] = score[rows[0]] - score[rows], tflops[rows].max()
    efficiency = tflops / best
    isotonic = IsotonicRegression(increasing=False, out_of_bounds="clip")
    isotonic.fit(gap, np.log(efficiency), sample_weight=efficiency**2)
    knots = np.unique(np.quantile(gap, np.linspace(0, 1, _ROWS) ** 2))
    knots = np.unique(np.concatenate([[0.0], knots]))
    share = np.exp(isotonic.predict(knots) - isotonic.predict([0.0])[0])
    share = np.maximum(np.minimum.accumulate(share), _LEAST_SHARE)
    plain = Calibration(tuple(knots.tolist()), (1.0, *share[1:].tolist()), 1.0, 1.0, 1.0, len(groups))
    predicted = np.concatenate([plain.speeds(score[rows], told[rows])[:SHOWN] for rows in groups])
    measured = np.concatenate([tflops[rows[:SHOWN]] for rows in groups])
    scale = float(np.median(measured / predicted))
    time = predicted * scale / measured
    # The conformal quantiles of so many values, of which none may lie outside of them all.
    level = min((1 + COVERED) / 2 * (1 + 1 / len(time)), 1.0)
    low, high = float(np.quantile(time, 1 - level)), float(np.quantile(time, level))
    return replace(plain, scale=scale, low=low, high=high)


def in_order(score: Floats, problem: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """The rows of each problem, best first."""
    order = np.lexsort((-score, problem))
    starts = np.flatnonzero(np.diff(problem[order])) + 1
    return iter(np.split(order, starts))
