"""Measuring a model's first choices again on the device, against the old best kernel and a random sample of all.

The best of a few kernels that were thought good flatters those who chose them. A random sample of all candidates says
what was missed: were more than a share q of them faster than the best that was measured, n random ones would all have
missed those with a probability of (1 - q)^n at most. With 59 that is 5 % for q = 5 %. Where the sample leaves some out,
the speed of the true best is estimated from the sample's two fastest as 2 s1 - s2 (Robson and Whitlock, Biometrika
51, 1964), and by no less than the best that was measured.
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

SAMPLE = 59  # random kernels: among so many one of the best 5 % is missing in 5 % of cases
_MISSED = 0.05  # probability
_TWO = 2  # fastest kernels, to estimate by


@dataclass(frozen=True, slots=True)
class Contest:
    """A problem and the kernels to measure again.

    Attributes:
        problem: canonical text.
        kernels: the oracle's best, the model's first choices, best score first, and those of the sample that are none.
        first: how many first choices there are.
        sample: names of random candidates.
        candidates: how many kernels there are to choose from.
    """

    problem: str
    kernels: tuple[str, ...]
    first: int
    sample: tuple[str, ...] = ()
    candidates: int = 0

    @property
    def missed_share(self) -> float:
        """The share of the candidates that may be faster than the best that is measured, with 95 % confidence.

        Of a sample without replacement: the least number m of faster ones that it misses in at most 5 % of cases.
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
    def _choices_ns(self) -> tuple[float | None, ...]:
        return self.times_ns[1 : 1 + self.contest.first]

    @property
    def estimated_best_ns(self) -> float:
        """The estimated time of the fastest of all candidates, no more than that of the fastest that was measured."""
        contest = self.contest
        known = dict(zip(contest.kernels, self.times_ns, strict=True))
        times = sorted(time for name in contest.sample if (time := known[name]) is not None)
        if len(contest.sample) >= contest.candidates or len(times) < _TWO:
            return self._best_ns
        return min(self._best_ns, 1.0 / (2.0 / times[0] - 1.0 / times[1]))

    @property
    def oracle_efficiency(self) -> float:
        """How near the oracle's kernel still is to the best of all that was measured again."""
        return _ratio(self._best_ns, self.times_ns[0])

    @property
    def first_efficiency(self) -> float:
        """Of the model's first choice."""
        return _ratio(self._best_ns, self.times_ns[1])

    @property
    def estimated_efficiency(self) -> float:
        """Of the model's first choice, against the estimated best of all candidates."""
        return _ratio(self.estimated_best_ns, self.times_ns[1])

    @property
    def top_efficiency(self) -> float:
        """Of the best of the model's choices."""
        return max(_ratio(self._best_ns, time) for time in self._choices_ns)

    @property
    def sample_won(self) -> bool:
        """True if a kernel of the sample was faster than the oracle's best and the model's choices."""
        others = [time for time in self.times_ns[: 1 + self.contest.first] if time is not None]
        return bool(others) and self._best_ns < min(others)


def contests(dataset: Dataset, first: Sequence[Sequence[str]]) -> list[Contest]:
    """The kernels to measure again on every problem that has choices: the oracle's best, and the choices.

    Args:
        dataset: of problems that have an oracle.
        first: names of a model's first choices of each problem, best first; none where it is refused.
    """
    times = times_of(dataset)
    best = choices(-times.latency_ms, times.problem, times.count)
    names = dataset.frame["kernel"].to_numpy()
    return [
        Contest(problem.canonical(), (str(names[row]), *chosen), len(chosen))
        for problem, row, chosen in zip(dataset.problems(), best, first, strict=True)
        if chosen
    ]


def first_measured(dataset: Dataset, scores: NDArray[np.float64], k: int) -> list[tuple[str, ...]]:
    """Names of the k measured kernels of the highest score of each problem."""
    problem = dataset.problem_ids
    place = places(scores, problem)
    names = dataset.frame["kernel"].to_numpy()
    rows = np.flatnonzero(place < k)
    rows = rows[np.lexsort((place[rows], problem[rows]))]
    chosen: list[list[str]] = [[] for _ in dataset.problems()]
    for row in rows:
        chosen[problem[row]].append(str(names[row]))
    return [tuple(one) for one in chosen]


def with_sample(
    found: Sequence[Contest], candidates: Callable[[str], Sequence[str]], size: int, seed: int
) -> list[Contest]:
    """The contests with as many random candidates of each problem.

    All kernels are in one random order, of which each problem has the first that apply to it: so few are to be
    compiled, and of one problem they are a random sample all the same.

    Args:
        found: the contests.
        candidates: names of the kernels that apply to a problem.
        size: how many of each.
        seed: of the order.
    """
    random = np.random.default_rng(seed)
    order: dict[str, float] = {}
    more = []
    for one in found:
        names = sorted(candidates(one.problem))
        for name in names:
            if name not in order:
                order[name] = float(random.random())
        sample = tuple(sorted(names, key=order.__getitem__)[:size])
        others = tuple(name for name in sample if name not in one.kernels)
        more.append(Contest(one.problem, (*one.kernels, *others), one.first, sample, len(names)))
    return more


def measured_again(contest: Contest, samples_ns: Sequence[Sequence[float]]) -> Remeasured:
    """The medians of the samples of each kernel; none where there are no samples."""
    return Remeasured(contest, tuple(float(np.median(one)) if len(one) else None for one in samples_ns))


def _ratio(best_ns: float, time_ns: float | None) -> float:
    return 0.0 if time_ns is None else best_ns / time_ns
