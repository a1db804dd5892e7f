"""95 % confidence intervals of figures: bootstrap over problems, since the rows of one problem belong together.

All figures of a call use the same draws, so that the difference of two figures is a paired difference. Only counts of
draws are kept, one block of resamples at a time: memory does not grow with the resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

CONFIDENCE = 0.95
_RESAMPLES = 2000
_RESAMPLES_OF_MANY = 1000  # with many problems intervals are narrow, and fewer resamples suffice
_MANY = 10_000
_DRAWN_VALUES = 1 << 20  # maximum drawn at a time
_WINDOW = 8.0  # search range of a resample's order statistic around the percentile's rank, in standard deviations


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> str:
        """The ends of the interval, in percent."""
        return f"{self.low:.2%} - {self.high:.2%}"

    def __str__(self) -> str:
        return f"{self.value:.2%} ({self.interval})"


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A figure of problems, each drawn a number of times."""

    columns: tuple[NDArray[np.float64], ...]
    """Values of problems, shape (problems,) each; the figure depends on their sums over the draws."""
    of_draws: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
    """Maps those sums, shape (resamples, columns), and the number of draws of each problem, shape (resamples,
    problems), to the figure of each resample."""


def estimates(figures: Mapping[str, Figure], problems: int, seed: int = 0) -> dict[str, Estimate]:
    """Compute each figure over all problems, with its interval.

    A figure that is undefined in a resample is NaN there, and that resample is ignored.
    """
    columns = np.stack([column for figure in figures.values() for column in figure.columns], axis=1)
    values = {name: float(whole[0]) for name, whole in _of_draws(figures, columns, np.ones((1, problems)))}
    resampled: dict[str, list[NDArray[np.float64]]] = {name: [] for name in figures}
    for counts in _draws(problems, seed):
        for name, block in _of_draws(figures, columns, counts):
            resampled[name].append(block)
    return {name: Estimate(values[name], *_ends(np.concatenate(blocks))) for name, blocks in resampled.items()}


def mean_of(values: NDArray[np.float64], inside: NDArray[np.bool_] | None = None) -> Figure:
    """Mean of values, shape (problems,), or of the values inside a mask."""
    weight = np.ones(len(values)) if inside is None else inside.astype(np.float64)
    weighted = np.where(weight > 0, values, 0.0)
    return Figure((weighted, weight), lambda sums, _counts: _divided(sums[:, 0], sums[:, 1]))


def geomean_of(values: NDArray[np.float64]) -> Figure:
    """Geometric mean of values, shape (problems,)."""
    mean = mean_of(np.log(np.maximum(values, 1e-12)))
    return Figure(mean.columns, lambda sums, counts: np.exp(mean.of_draws(sums, counts)))


def percentile_of(values: NDArray[np.float64], percent: float) -> Figure:
    """Percentile of values, shape (problems,), interpolated linearly between order statistics."""
    order = np.argsort(values, kind="stable")
    at = (len(values) - 1) * percent / 100
    rank, part = int(at), at - int(at)
    # A resample's order statistic is near the rank over all problems: draws are counted individually only there.
    width = 2 + math.ceil(_WINDOW * math.sqrt(len(values)) / 2)
    first = max(0, rank - width)
    near = order[first : rank + width + 2]
    below = np.zeros(len(values))
    below[order[:first]] = 1.0

    def of_draws(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        up_to = sums[:, :1] + np.cumsum(counts[:, near], axis=1)
        above = [(up_to <= min(place, len(values) - 1)).sum(axis=1) for place in (rank, rank + 1)]
        ends = [values[near[np.minimum(first, up_to.shape[1] - 1)]] for first in above]
        return np.asarray(ends[0] + part * (ends[1] - ends[0]))

    return Figure((below,), of_draws)


def difference(after: Figure, before: Figure) -> Figure:
    """Difference of two figures on the same draws: a paired difference."""
    return _of_two(after, before, np.subtract)


def ratio(over: Figure, under: Figure) -> Figure:
    """Ratio of two figures on the same draws; NaN where the denominator is 0."""
    return _of_two(over, under, _divided)


def _of_two(
    first: Figure, second: Figure, combined: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
) -> Figure:
    split = len(first.columns)
    return Figure(
        (*first.columns, *second.columns),
        lambda sums, counts: combined(
            first.of_draws(sums[:, :split], counts), second.of_draws(sums[:, split:], counts)
        ),
    )


def _of_draws(
    figures: Mapping[str, Figure], columns: NDArray[np.float64], counts: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    sums, start = counts @ columns, 0
    for name, figure in figures.items():
        stop = start + len(figure.columns)
        yield name, figure.of_draws(sums[:, start:stop], counts)
        start = stop


def _divided(over: NDArray[np.float64], under: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.divide(over, under, out=np.full(len(over), np.nan), where=under != 0))


def _draws(problems: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield the number of draws of each problem, in blocks of shape (resamples, problems)."""
    random = np.random.default_rng(seed)
    resamples = _RESAMPLES_OF_MANY if problems > _MANY else _RESAMPLES
    step = max(1, _DRAWN_VALUES // problems)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = random.integers(0, problems, (rows, problems)) + np.arange(rows)[:, None] * problems
        yield np.bincount(drawn.ravel(), minlength=rows * problems).reshape(rows, problems).astype(np.float64)


def _ends(resampled: NDArray[np.float64]) -> tuple[float, float]:
    known = resampled[np.isfinite(resampled)]
    if not len(known):
        return float("nan"), float("nan")
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)
