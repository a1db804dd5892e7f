"""Remeasurement of a model's first choices on the device, with the oracle's kernel and a random sample of all kernels.

The best of a few preselected kernels is a biased reference. A random sample of all candidates bounds what was missed:
if more than a share q of them were faster than the best measured kernel, n random kernels would all miss those with
probability at most (1 - q)^n; for n = 59 and q = 5 % that is 5 %. If the sample does not include all candidates, the
speed of the true best is estimated from the sample's two fastest speeds as 2 s1 - s2 (Robson and Whitlock, Biometrika
51, 1964), and is at least the best measured speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices, places
from ckh.assess.times import times_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

SAMPLE = 59  # random kernels: all miss the best 5 % with a probability of 5 %
_MISSED = 0.05  # probability of missing
_TWO = 2  # fastest kernels used in the estimate


@dataclass(frozen=True, slots=True)
class Contest:
    """A problem and the kernels to measure again."""

    problem: str  # canonical text
    kernels: tuple[str, ...]
    """The oracle's kernel, the model's first choices, best score first, and further kernels of the sample."""
    first: int  # number of first choices
    sample: tuple[str, ...] = ()  # names of random candidates
    candidates: int = 0  # number of candidates

    @property
    def missed_share(self) -> float:
        """Share of the candidates that may be faster than the best measured kernel, with 95 % confidence.

        For sampling without replacement: the smallest number m of faster kernels that the sample misses in at most 5 %
        of cases.
        """
        total, drawn = self.candidates, len(self.sample)
        if not drawn:
            return 1.0
        all_samples = comb(total, drawn)
        for faster in range(total - drawn + 1):
            if comb(total - faster, drawn) <= _MISSED * all_samples:
                return (faster - 1) / total
        return (total - drawn) / total


@dataclass(frozen=True, slots=True)
class Remeasured:
    """Times of a contest's kernels in its order; None where a kernel failed."""

    contest: Contest
    times_ns: tuple[float | None, ...]

    @property
    def _best_ns(self) -> float:
        return min((time for time in self.times_ns if time is not None), default=float("nan"))

    @property
    def estimated_best_ns(self) -> float:
        """Estimated time of the fastest candidate, at most that of the fastest measured kernel."""
        contest = self.contest
        known = dict(zip(contest.kernels, self.times_ns, strict=True))
        times = sorted(time for name in contest.sample if (time := known[name]) is not None)
        if len(contest.sample) >= contest.candidates or len(times) < _TWO:
            return self._best_ns
        return min(self._best_ns, 1.0 / (2.0 / times[0] - 1.0 / times[1]))

    @property
    def oracle_efficiency(self) -> float:
        """Efficiency of the oracle's kernel relative to the best of all remeasured kernels."""
        return _ratio(self._best_ns, self.times_ns[0])

    @property
    def first_efficiency(self) -> float:
        """Efficiency of the model's first choice."""
        return _ratio(self._best_ns, self.times_ns[1])

    @property
    def estimated_efficiency(self) -> float:
        """Efficiency of the model's first choice relative to the estimated best of all candidates."""
        return _ratio(self.estimated_best_ns, self.times_ns[1])

    @property
    def top_efficiency(self) -> float:
        """Efficiency of the best of the model's choices."""
        return max(_ratio(self._best_ns, time) for time in self.times_ns[1 : 1 + self.contest.first])

    @property
    def sample_won(self) -> bool:
        """Return True if a kernel of the sample was faster than the oracle's kernel and the model's choices."""
        others = [time for time in self.times_ns[: 1 + self.contest.first] if time is not None]
        return bool(others) and self._best_ns < min(others)


def contests(dataset: Dataset, first: Sequence[Sequence[str]]) -> list[Contest]:
    """Select the kernels to remeasure on every problem with choices: the oracle's kernel and the choices."""
    times = times_of(dataset)
    best = choices(-times.latency_ms, times.problem, times.count)
    names = dataset.frame["kernel"].to_numpy()
    return [
        Contest(problem.canonical(), (str(names[row]), *chosen), len(chosen))
        for problem, row, chosen in zip(dataset.problems(), best, first, strict=True)
        if chosen
    ]


def first_measured(dataset: Dataset, scores: NDArray[np.float64], k: int) -> list[tuple[str, ...]]:
    """Names of the k measured kernels with the highest scores of each problem."""
    problem = dataset.problem_ids
    place = places(scores, problem)
    names = dataset.frame["kernel"].to_numpy()
    rows = np.flatnonzero(place < k)
    rows = rows[np.lexsort((place[rows], problem[rows]))]
    chosen: list[list[str]] = [[] for _ in dataset.problems()]
    for row in rows:
        chosen[problem[row]].append(str(names[row]))
    return [tuple(kernels) for kernels in chosen]


def with_sample(
    chosen: Sequence[Contest], candidates: Callable[[str], Sequence[str]], size: int, seed: int
) -> list[Contest]:
    """Add random candidates of each problem to the contests.

    All kernels are put in one random order, and each problem uses the first applicable ones: few kernels need
    compiling, and for each problem they are still a random sample.
    """
    random = np.random.default_rng(seed)
    order: dict[str, float] = {}
    more = []
    for contest in chosen:
        names = sorted(candidates(contest.problem))
        for name in names:
            if name not in order:
                order[name] = float(random.random())
        sample = tuple(sorted(names, key=order.__getitem__)[:size])
        others = tuple(name for name in sample if name not in contest.kernels)
        more.append(Contest(contest.problem, (*contest.kernels, *others), contest.first, sample, len(names)))
    return more


def measured_again(contest: Contest, samples_ns: Sequence[Sequence[float]]) -> Remeasured:
    """Medians of the samples of each kernel; None without samples."""
    return Remeasured(contest, tuple(float(np.median(times)) if len(times) else None for times in samples_ns))


def _ratio(best_ns: float, time_ns: float | None) -> float:
    return 0.0 if time_ns is None else best_ns / time_ns
