"""Measuring a model's first choices and the oracle's best kernel again, against each other, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.measured import times_of
from ckh.assess.metrics import choices, places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Contest:
    """A problem and the kernels to measure again: the oracle's best first, then the model's, best score first."""

    problem: str
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remeasured:
    """Times of a contest's kernels in its order; None where a kernel failed."""

    contest: Contest
    times_ns: tuple[float | None, ...]

    @property
    def _best_ns(self) -> float:
        return min((time for time in self.times_ns if time is not None), default=float("nan"))

    @property
    def oracle_efficiency(self) -> float:
        """How near the oracle's kernel still is to the best of all that was measured again."""
        return _ratio(self._best_ns, self.times_ns[0])

    @property
    def first_efficiency(self) -> float:
        """Of the model's first choice."""
        return _ratio(self._best_ns, self.times_ns[1])

    @property
    def top_efficiency(self) -> float:
        """Of the best of the model's choices."""
        return max(_ratio(self._best_ns, time) for time in self.times_ns[1:])


def contests(dataset: Dataset, scores: NDArray[np.float64], k: int) -> list[Contest]:
    """The kernels to measure again on every problem: the oracle's best and the k of the highest score."""
    times = times_of(dataset)
    best = choices(-times.latency_ms, times.problem, times.count)
    place = places(scores, times.problem)
    names = dataset.frame["kernel_name"].to_numpy()
    rows = np.flatnonzero(place < k)
    rows = rows[np.lexsort((place[rows], times.problem[rows]))]
    chosen: list[list[str]] = [[] for _ in range(times.count)]
    for row in rows:
        chosen[times.problem[row]].append(str(names[row]))
    return [
        Contest(problem.canonical(), (str(names[best[i]]), *chosen[i])) for i, problem in enumerate(dataset.problems())
    ]


def measured_again(contest: Contest, samples_ns: Sequence[Sequence[float]]) -> Remeasured:
    """The medians of the samples of each kernel; none where there are no samples."""
    return Remeasured(contest, tuple(float(np.median(one)) if len(one) else None for one in samples_ns))


def _ratio(best_ns: float, time_ns: float | None) -> float:
    return 0.0 if time_ns is None else best_ns / time_ns
