"""Metrics of choices: efficiency and hit rates.

The oracle of a problem is its shortest measured time. Efficiency is the oracle over the chosen kernel's measured time.
Kernels within the repeatability of the oracle count as ties (`noise`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import Estimate, Figure, estimates, geomean_of, mean_of, percentile_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

TOP_KS = (1, 3, 5, 10)
_MIN_TOLERANCE = 0.01  # relative; closer times are ties


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Measured times of rows, one row per (problem, kernel) pair."""

    problem: NDArray[np.int64]  # index of each row's problem, 0, 1, …, shape (rows,)
    latency_ms: NDArray[np.float64]  # positive times, shape (rows,)
    spread: NDArray[np.float64]  # relative median absolute deviation of each time, NaN where unknown, shape (rows,)
    tolerance: NDArray[np.float64] | None = None
    """Relative difference between repeated measurements of a kernel, NaN where unknown, shape (problems,); None if
    unknown for all problems."""

    @property
    def count(self) -> int:
        """Number of problems."""
        return int(self.problem.max()) + 1 if len(self.problem) else 0

    def oracle_ms(self) -> NDArray[np.float64]:
        """Shortest time of each problem, shape (problems,)."""
        best = np.full(self.count, np.inf)
        np.minimum.at(best, self.problem, self.latency_ms)
        return best

    def efficiency(self) -> NDArray[np.float64]:
        """Efficiency of each row, if chosen, shape (rows,)."""
        return np.asarray(self.oracle_ms()[self.problem] / self.latency_ms)

    def own_tolerance(self) -> NDArray[np.float64]:
        """Relative tolerance of ties without repeated measurements, shape (problems,).

        It is the spread of the oracle's samples, at least 1 %.
        """
        tolerance = np.full(self.count, _MIN_TOLERANCE)
        is_oracle = self.efficiency() >= 1.0
        np.maximum.at(tolerance, self.problem[is_oracle], np.nan_to_num(self.spread[is_oracle]))
        return tolerance

    def is_best(self) -> NDArray[np.bool_]:
        """Mask of rows that tie with the oracle within the repeatability of measurements."""
        return as_good(self.efficiency(), known_or(self.tolerance, self.own_tolerance())[self.problem])


def known_or(known: NDArray[np.float64] | None, otherwise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace NaN or missing tolerances."""
    return otherwise if known is None else np.where(np.isfinite(known), known, otherwise)


def as_good(efficiency: NDArray[np.float64], tolerance: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mask of efficiencies that are 1 within the tolerance."""
    return np.asarray(efficiency >= 1.0 / (1.0 + tolerance))


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Distribution of the efficiency of choices over problems."""

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
    """Efficiency of measuring the first k choices and keeping the best."""

    k: int
    problems: int
    """Problems with a measured kernel among the first k."""
    hit: float
    """Share of problems where a best kernel is among the first k."""
    efficiency_mean: float
    """Mean efficiency of the best of the first k."""
    efficiency_p10: float


def choices(scores: NDArray[np.float64], problem: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Index of the row with the highest score of each problem, the first of ties, shape (count,)."""
    order = np.lexsort((np.arange(len(scores)), -scores, problem))
    first = np.searchsorted(problem[order], np.arange(count))
    return np.asarray(order[first], dtype=np.int64)


def places(scores: NDArray[np.float64], problem: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank of each row within its problem, from 0, shape (rows,)."""
    order = np.lexsort((np.arange(len(scores)), -scores, problem))
    ordered = problem[order]
    starts = np.searchsorted(ordered, ordered)
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[order] = np.arange(len(scores)) - starts
    return ranks


def summarize(efficiency: NDArray[np.float64], seed: int = 0) -> Efficiency:
    """Summarize the distribution of efficiencies, shape (problems,); percentiles are interpolated linearly."""
    return summaries({"": efficiency}, seed)[""]


def summaries(efficiency: Mapping[str, NDArray[np.float64]], seed: int = 0) -> dict[str, Efficiency]:
    """Apply `summarize` to several choices on the same problems, shape (problems,) each, with the same draws."""
    figures: dict[str, Figure] = {}
    for name, values in efficiency.items():
        parts = {"mean": mean_of(values), "geomean": geomean_of(values)}
        parts |= {f"p{percent}": percentile_of(values, percent) for percent in (50, 10, 5)}
        figures |= {f"{part} {name}": figure for part, figure in parts.items()}
    estimated = estimates(figures, len(next(iter(efficiency.values()))), seed)
    return {
        name: Efficiency(
            problems=len(values),
            **{part: estimated[f"{part} {name}"] for part in ("mean", "geomean", "p50", "p10", "p5")},
            min=float(values.min()),
        )
        for name, values in efficiency.items()
    }


def best_of_first(times: Times, place: NDArray[np.float64], ks: Sequence[int] = TOP_KS) -> NDArray[np.float64]:
    """Efficiency of the best measured kernel among the first k choices of each problem, shape (ks, problems).

    NaN where none of them was measured.
    """
    efficiency = times.efficiency()
    best = np.full((len(ks), times.count), np.nan)
    for row, k in zip(best, ks, strict=True):
        inside = place < k
        np.fmax.at(row, times.problem[inside], efficiency[inside])
    return best


def top_k(best: NDArray[np.float64], tolerance: NDArray[np.float64], ks: Sequence[int] = TOP_KS) -> list[TopK]:
    """Hit rate and efficiency of the best of the first k choices.

    Problems without a measured kernel among the first k are ignored; a k without any such problem is left out.
    """
    tops = []
    for k, row in zip(ks, best, strict=True):
        known = np.isfinite(row)
        if known.any():
            hit = as_good(row[known], tolerance[known]).mean()
            figures = float(hit), float(row[known].mean()), float(np.percentile(row[known], 10))
            tops.append(TopK(k, int(known.sum()), *figures))
    return tops


def figures(efficiency: Efficiency) -> dict[str, float]:
    """Figures by their names in gates (`FIGURES`)."""
    parts = {name: getattr(efficiency, name.removesuffix(_FIGURE_SUFFIX)) for name in FIGURES}
    return {name: part.value if isinstance(part, Estimate) else float(part) for name, part in parts.items()}
