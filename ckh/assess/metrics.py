"""How good choices are: efficiency, and whether the best kernel was found.

The oracle of a problem is its least measured time. Efficiency is that over the chosen kernel's measured time: 1 at
best. Which kernels count as best knows noise: all whose times the oracle's own spread covers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

TOP_KS = (1, 3, 5, 10)
_BOOTSTRAPS = 2000
_DRAWN_VALUES = 1 << 21  # drawn at a time
_CONFIDENCE = 0.95
_MIN_TOLERANCE = 0.01  # of two times nearer than this, neither is the better


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Measured times of rows, one for each (problem, kernel) pair.

    Attributes:
        problem: number of each row's problem, 0, 1, …, shape (rows,).
        latency_ms: positive times, shape (rows,).
        spread: relative median absolute deviation of each, NaN where unknown, shape (rows,).
    """

    problem: NDArray[np.int64]
    latency_ms: NDArray[np.float64]
    spread: NDArray[np.float64]

    @property
    def count(self) -> int:
        """How many problems there are."""
        return int(self.problem.max()) + 1 if len(self.problem) else 0

    def oracle_ms(self) -> NDArray[np.float64]:
        """Least time of each problem, shape (problems,)."""
        best = np.full(self.count, np.inf)
        np.minimum.at(best, self.problem, self.latency_ms)
        return best

    def efficiency(self) -> NDArray[np.float64]:
        """Of each row, were it chosen, shape (rows,)."""
        return np.asarray(self.oracle_ms()[self.problem] / self.latency_ms)

    def is_best(self) -> NDArray[np.bool_]:
        """Whether a row is as good as its oracle, to what was measured: within its spread, and 1 % in any case."""
        efficiency = self.efficiency()
        tolerance = np.full(self.count, _MIN_TOLERANCE)
        is_oracle = efficiency >= 1.0
        np.maximum.at(tolerance, self.problem[is_oracle], np.nan_to_num(self.spread[is_oracle]))
        return np.asarray(efficiency >= 1.0 / (1.0 + tolerance[self.problem]))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and the interval that holds it with 95 % confidence (bootstrap over problems)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The distribution of the efficiency of choices over problems."""

    problems: int
    mean: Estimate
    geomean: Estimate
    p50: Estimate
    p10: Estimate
    p5: Estimate
    min: float


_FIGURE_SUFFIX = "_efficiency"
FIGURES = tuple(f"{field.name}{_FIGURE_SUFFIX}" for field in fields(Efficiency) if field.name != "problems")


@dataclass(frozen=True, slots=True)
class TopK:
    """What measuring the first k choices would give."""

    k: int
    hit: float
    efficiency_mean: float
    efficiency_p10: float


def choices(scores: NDArray[np.float64], problem: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The row with the highest score of each problem, the first of equals, shape (count,)."""
    order = np.lexsort((np.arange(len(scores)), -scores, problem))
    first = np.searchsorted(problem[order], np.arange(count))
    return np.asarray(order[first], dtype=np.int64)


def places(scores: NDArray[np.float64], problem: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each row in its problem's ranking, 0 for the first, shape (rows,)."""
    order = np.lexsort((np.arange(len(scores)), -scores, problem))
    ordered = problem[order]
    starts = np.searchsorted(ordered, ordered)
    result = np.empty(len(scores), dtype=np.int64)
    result[order] = np.arange(len(scores)) - starts
    return result


def summarize(efficiency: NDArray[np.float64], seed: int = 0) -> Efficiency:
    """The distribution of efficiencies, shape (problems,); percentiles interpolate linearly."""
    figures: dict[str, Callable[..., Any]] = {
        "mean": np.mean,
        "geomean": _geomean,
        **{name: partial(np.percentile, q=q) for name, q in (("p50", 50), ("p10", 10), ("p5", 5))},
    }
    random = np.random.default_rng(seed)
    resampled: dict[str, list[NDArray[np.float64]]] = {name: [] for name in figures}
    step = max(1, _DRAWN_VALUES // len(efficiency))
    for start in range(0, _BOOTSTRAPS, step):
        drawn = efficiency[random.integers(0, len(efficiency), (min(step, _BOOTSTRAPS - start), len(efficiency)))]
        for name, figure in figures.items():
            resampled[name].append(figure(drawn, axis=1))
    return Efficiency(
        problems=len(efficiency),
        **{name: _estimate(float(figure(efficiency)), resampled[name]) for name, figure in figures.items()},
        min=float(efficiency.min()),
    )


def top_k(times: Times, scores: NDArray[np.float64], ks: Sequence[int] = TOP_KS) -> list[TopK]:
    """How often the first k choices hold a best kernel, and the efficiency of the best of them."""
    place, efficiency, is_best = places(scores, times.problem), times.efficiency(), times.is_best()
    found = []
    for k in ks:
        inside = place < k
        best, hit = np.zeros(times.count), np.zeros(times.count, dtype=bool)
        np.maximum.at(best, times.problem[inside], efficiency[inside])
        np.logical_or.at(hit, times.problem[inside], is_best[inside])
        found.append(TopK(k, float(hit.mean()), float(best.mean()), float(np.percentile(best, 10))))
    return found


def figures(efficiency: Efficiency) -> dict[str, float]:
    """Figures by the names that gates use (`FIGURES`)."""
    parts = {name: getattr(efficiency, name.removesuffix(_FIGURE_SUFFIX)) for name in FIGURES}
    return {name: part.value if isinstance(part, Estimate) else float(part) for name, part in parts.items()}


def _geomean(values: NDArray[np.float64], axis: int | None = None) -> Any:
    return np.exp(np.log(np.maximum(values, 1e-12)).mean(axis=axis))


def _estimate(value: float, resampled: Sequence[NDArray[np.float64]]) -> Estimate:
    tail = 100 * (1 - _CONFIDENCE) / 2
    low, high = np.percentile(np.concatenate(resampled), [tail, 100 - tail])
    return Estimate(value, float(low), float(high))
