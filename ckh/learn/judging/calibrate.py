"""Fit a calibration to out-of-fold predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.answers.answer import SET_COVERED, SET_SHOWN
from ckh.learn.models.calibration import COVERED, Calibration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

    Floats = NDArray[np.float64]

_ROWS = 33  # of the table
SHOWN = 5  # kernels that users look at: the interval is calibrated for their times
_LEAST_SHARE = 1e-3
_SAME_GAP = 1e-15  # differences of equal scores are rounded
_ROUNDING = 1e-9  # of a sum of shares
_FEWEST = 20  # minimum number of problems: fewer do not determine a 5 % quantile
# Tuned on the folds of the host models: more bands do not improve the interval (benchmarks/calibrate.py).
_BANDS, _PROBLEMS_OF_BAND = 4, 40
_NO_BANDS = ((0.0, 1.0, 1.0),)
WITHIN = (0.0, SET_SHOWN, 0.05)


def calibrate(
    score: Floats | None, predicted_speed: Floats, tflops: Floats, problem: NDArray[np.int64], timed: int = 0
) -> Calibration | None:
    """Calibrate on held-out rows; None for too few problems.

    The shares are an isotonic regression of log(TFLOPS / best TFLOPS of the problem), with larger weights for better
    kernels. The interval spans quantiles of measured over predicted time among the first kernels of each problem, so
    that it covers the nominal share of the times of further problems from the same distribution: split conformal
    prediction, in bands of the predicted speed (Mondrian conformal prediction).
    """
    by = predicted_speed if score is None else score
    usable = np.isfinite(by) & np.isfinite(predicted_speed) & (predicted_speed > 0) & (tflops > 0)
    by, predicted_speed, tflops, problem = by[usable], predicted_speed[usable], tflops[usable], problem[usable]
    groups = list(in_order(by, problem))
    if len(groups) < _FEWEST:
        return None
    gap, share = ((), ()) if timed or score is None else _shares(by, tflops, groups)
    plain = Calibration(gap, share, 1.0, _NO_BANDS, len(groups))
    shown = timed or SHOWN
    predicted = [plain.speeds(by[rows], predicted_speed[rows])[:shown] for rows in groups]
    times = [speeds / tflops[rows[:shown]] for speeds, rows in zip(predicted, groups, strict=True)]
    scale = 1.0 / float(np.median(np.concatenate(times)))
    first = np.array([speeds[0] for speeds in predicted]) * scale
    return replace(plain, scale=scale, bands=_bands(first, [time * scale for time in times]))


def relative_speeds(score: Floats, tflops: Floats, problem: NDArray[np.int64]) -> Calibration:
    """Calibrate the shares alone, for any number of problems."""
    groups = list(in_order(score, problem))
    return Calibration(*_shares(score, tflops, groups), 1.0, _NO_BANDS, len(groups))


def _shares(
    score: Floats, tflops: Floats, groups: Sequence[NDArray[np.intp]]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Distances to the best score, and relative speeds at these distances."""
    from scipy.optimize import isotonic_regression

    gap, best = np.empty(len(score)), np.empty(len(score))
    for rows in groups:
        gap[rows], best[rows] = score[rows[0]] - score[rows], tflops[rows].max()
    efficiency = tflops / best
    order = np.lexsort((efficiency, gap))
    gap, efficiency = gap[order], efficiency[order]
    is_new = np.diff(gap, prepend=-1.0) >= _SAME_GAP
    number, weight = np.cumsum(is_new) - 1, efficiency**2
    total = np.bincount(number, weight)
    mean = np.bincount(number, weight * np.log(efficiency)) / total
    decreasing = isotonic_regression(mean, weights=total, increasing=False).x
    knots = np.unique(np.concatenate([[0.0], np.quantile(gap, np.linspace(0, 1, _ROWS) ** 2)]))
    share = np.interp(knots, gap[is_new], decreasing)
    share = np.exp(share - share[0])
    share = np.maximum(np.minimum.accumulate(share), _LEAST_SHARE)
    return tuple(knots.tolist()), (1.0, *share[1:].tolist())


def _bands(first: Floats, times: Sequence[Floats]) -> tuple[tuple[float, float, float], ...]:
    """Prediction intervals by predicted speed, in bands with equal numbers of problems."""
    count = max(1, min(_BANDS, len(first) // _PROBLEMS_OF_BAND))
    starts = np.unique(np.quantile(first, np.linspace(0, 1, count + 1)[1:-1]))
    band = np.searchsorted(starts, first, side="right")
    bands = []
    for number, start in enumerate((0.0, *starts.tolist())):
        inside = np.flatnonzero(band == number)
        time = np.concatenate([times[i] for i in inside.tolist()])
        # Conformal quantiles over problems, whose times have correlated errors; limited to the observed range.
        level = min((1 + COVERED) / 2 * (1 + 1 / len(inside)), 1.0)
        bands.append((start, float(np.quantile(time, 1 - level)), float(np.quantile(time, level))))
    return tuple(bands)


def in_order(score: Floats, problem: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Row indices of each problem, best first."""
    order = np.lexsort((-score, problem))
    starts = np.flatnonzero(np.diff(problem[order])) + 1
    return iter(np.split(order, starts))


def covering_sets(tried: Dataset, rows: Dataset, score: Floats) -> tuple[tuple[float, int], ...]:
    """How many first kernels to measure, so that one is within each of `WITHIN` of the best; none if not calibrated."""
    places, layer = first_places(tried, rows, score), rows.split_ids[rows.first_rows]
    counts = ((within, covering(place, layer)) for within, place in zip(WITHIN, places.T, strict=True))
    return tuple((within, count) for within, count in counts if count is not None)


def covering(place: Floats, layer: NDArray[np.int64]) -> int | None:
    """Number of first kernels that suffices for 95 % of further layers, given the number that each problem needs.

    Split conformal prediction over whole layers, which count alike. None for fewer than 19 layers, or if not even all
    kernels suffice.
    """
    place, layer = place[~np.isnan(place)], layer[~np.isnan(place)]
    _, number, counts = np.unique(layer, return_inverse=True, return_counts=True)
    order = np.argsort(place)
    is_enough = np.cumsum(1 / counts[number][order]) >= SET_COVERED * (len(counts) + 1) - _ROUNDING
    is_enough &= np.isfinite(place[order])
    return int(place[order][is_enough.argmax()]) if is_enough.any() else None


def first_places(tried: Dataset, rows: Dataset, score: Floats) -> Floats:
    """Number of first rows of an answer of which one is within each of `WITHIN` of the best, for each problem.

    `rows` have the held-out scores, and `tried` also kernels without a time, which count as the first. Infinite where a
    candidate was not tried: it may be the best; NaN without candidates, as where answers are for a padded problem.
    """
    op, arch, ms = rows.op, load_arch(rows.arch), rows.frame["latency_ms"].to_numpy(dtype=np.float64)
    names, codes = np.unique(tried.frame["kernel"].astype(str), return_inverse=True)
    of_rows, join = np.searchsorted(names, rows.frame["kernel"].astype(str)), KernelJoin(op, names.tolist())
    order, ends = np.argsort(tried.problem_ids, kind="stable"), np.cumsum(np.bincount(tried.problem_ids))
    known = dict(zip(tried.problems(), np.split(codes[order], ends[:-1]), strict=True))
    places, lacking = np.full((len(rows.first_rows), len(WITHIN)), np.inf), 0
    with TemporaryDirectory() as folder:
        for name, content_of in op.training.model_files.items():
            if (content := content_of(rows.frame, None)) is not None:
                (Path(folder) / name).write_bytes(content)
        for of_problem in in_order(score, rows.problem_ids):
            number = rows.problem_ids[of_problem[0]]
            problem = rows.problems()[number]
            found = op.kernels.candidates(problem, arch, Path(folder))
            kernel, code = join.pairs(found.pool)
            is_known = np.isin(kernel, found.chosen) & np.isin(code, known[problem])
            kernel, code = kernel[is_known][::-1], code[is_known][::-1]
            if not len(found.chosen):
                places[number] = np.nan
                continue
            if len(np.unique(kernel)) < len(found.chosen):
                lacking += 1
                if lacking > (1 - SET_COVERED) * len(places):  # rules of large pools take long
                    return np.full_like(places, np.inf)
                continue
            place = np.full(len(names), -1)
            place[code] = kernel  # the first of those that a short name matches
            own = of_problem[place[of_rows[of_problem]] >= 0]
            own = own[np.lexsort((place[of_rows[own]], -score[own]))]
            # Kernels with equal scores are a row, the first in the pool.
            shown = own[np.diff(score[own], prepend=np.inf) != 0]
            for column, within in enumerate(WITHIN):
                if len(near := np.flatnonzero(ms[shown] <= (1 + within) * ms[own].min())):
                    places[number, column] = len(found.chosen) - len(own) + near[0] + 1
    return places
