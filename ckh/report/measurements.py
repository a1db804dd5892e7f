"""Figures of measurements, for any dataset or run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ckh.report.drawing import Bars, Dots, Drawing, Line, Lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_MOST_BARS = 12
_STEADY = 0.05  # larger spreads deserve attention
_POINTS = 60


def coverage(sizes: Mapping[str, NDArray[np.float64]], weights: NDArray[np.float64]) -> Drawing | None:
    """Frequencies of sizes: values of problems by the size's name; None if all are the same.

    Args:
        sizes: values of the problems, shape (problems,) each.
        weights: number of executions of each problem, shape (problems,).
    """
    result = {name: _counted(values, weights) for name, values in sizes.items()}
    varying = {name: pair for name, pair in result.items() if len(pair[0]) > 1}
    if not varying:
        return None
    widest = max(varying, key=lambda name: float(varying[name][0][-1] / max(varying[name][0][0], 1)))
    low, high = varying[widest][0][[0, -1]]
    return Drawing(
        "coverage",
        f"{len(weights):,} problems cover {len(varying)} sizes; {widest} has the widest range, {low:g} to {high:g}",
        "Each dot is a value of a size; its area is the number of problems with it. Constant sizes are omitted.",
        Dots(
            tuple(varying),
            [values.tolist() for values, _ in varying.values()],
            [counts.tolist() for _, counts in varying.values()],
            "value of the size",
        ),
    )


def _counted(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Distinct values, and their frequencies."""
    distinct, place = np.unique(values, return_inverse=True)
    return distinct, np.bincount(place.ravel(), weights=weights).astype(np.int64)


def winners(names: Sequence[str], weights: NDArray[np.float64], kernels: int) -> Drawing:
    """How often each kernel is the fastest.

    Args:
        names: the fastest kernel of each problem.
        weights: number of executions of each problem, shape (problems,).
        kernels: number of measured kernels.
    """
    counts: Counter[str] = Counter()
    for name, weight in zip(names, weights.astype(int).tolist(), strict=True):
        counts[name] += weight
    wins, total = counts.most_common(), counts.total()
    share = np.cumsum([count for _, count in wins]) / total
    enough = int(np.searchsorted(share, 0.9)) + 1
    shown = wins[:_MOST_BARS]
    return Drawing(
        "winners",
        f"{len(wins)} of {kernels:,} kernels are ever the fastest; {enough} of them cover 90 % of the problems",
        f"Number of problems on which a kernel has the shortest measured time; the {len(shown)} most frequent winners."
        + (" Problems are weighted by count." if total > len(names) else ""),
        Bars(
            [name for name, _ in shown],
            [count for _, count in shown],
            [f"{count:,} ({count / total:.0%})" for _, count in shown],
            "problems won",
            strong=min(enough, len(shown)),
        ),
    )


def failures(reasons: Mapping[str, int], rows: int) -> Drawing | None:
    """Reasons why rows have no usable time; None if all have one."""
    counts = Counter(reasons).most_common(_MOST_BARS)
    total = sum(reasons.values())
    if not total:
        return None
    return Drawing(
        "failures",
        f"{total / rows:.1%} of the pairs failed, most of them by: {counts[0][0]}",
        f"{total:,} of {rows:,} pairs of a kernel and a problem have no usable time.",
        Bars(
            [reason for reason, _ in counts],
            [count for _, count in counts],
            [f"{count:,}" for _, count in counts],
            "pairs",
            strong=1,
        ),
    )


def noise(spread: NDArray[np.float64]) -> Drawing | None:
    """Spread of the samples of measurements; None if unknown."""
    known = np.sort(spread[np.isfinite(spread)])
    if not len(known):
        return None
    at = np.linspace(0, 1, _POINTS)
    values = np.quantile(known, at)
    return Drawing(
        "noise",
        f"Half of the measurements spread less than {np.median(known):.1%}, "
        f"{np.mean(known > _STEADY):.1%} of them more than {_STEADY:.0%}",
        "Median absolute deviation of a measurement's samples, relative to their median, in ascending order.",
        Lines(
            [Line("", at.tolist(), values.tolist())],
            "share of the measurements",
            "spread",
            log_y=True,
            percent_x=True,
            percent_y=True,
        ),
    )


def over_time(when: NDArray[np.float64], unit: str, spread: NDArray[np.float64]) -> Drawing | None:
    """Spread during a run: medians of equal parts; None with too few measurements.

    Args:
        when: time since the start, or positions in the order of measurement; shape (rows,).
        unit: unit of `when`.
        spread: spread of each row, shape (rows,).
    """
    known = np.isfinite(spread)
    if known.sum() < 2 * _POINTS or np.ptp(when[known]) <= 0:
        return None
    order = np.argsort(when[known], kind="stable")
    parts = np.array_split(order, _POINTS)
    x = [float(np.median(when[known][part])) for part in parts]
    low, middle, high = ([float(np.quantile(spread[known][part], q)) for part in parts] for q in (0.25, 0.5, 0.75))
    return Drawing(
        "noise-over-time",
        f"The spread is {middle[0]:.1%} at the start and {middle[-1]:.1%} at the end of {_round(np.ptp(when))} {unit}",
        f"Medians of {_POINTS} parts of the run, with the middle half of the measurements as a band.",
        Lines(
            [Line("spread", x, middle, low=low, high=high)],
            f"{unit} since the start",
            "spread of the samples",
            percent_y=True,
            y_range=(0.0, max(high) * 1.05 or 0.01),
        ),
    )


def _round(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"  # noqa: PLR2004 - three digits
