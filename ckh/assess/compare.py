"""An old model against a new one on the same measured problems, and whether the new one may replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import Figure, difference, estimates, mean_of, percentile_of
from ckh.assess.measured import times_of
from ckh.assess.metrics import choices
from ckh.assess.verdict import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ckh.assess.measured import Scorer
    from ckh.data.dataset import Dataset
_FIGURES: dict[str, Callable[[NDArray[np.float64]], Figure]] = {
    "mean": mean_of,
    "median": lambda values: percentile_of(values, 50),
    "P10": lambda values: percentile_of(values, 10),
}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much worse the new model may be, in efficiency. `problem`: on any single problem, relative."""

    mean: float = 0.005
    median: float = 0.005
    p10: float = 0.02
    problem: float = 0.10


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of both models; `low` to `high` is the paired 95 % interval of new - old."""

    name: str
    old: float
    new: float
    low: float
    high: float
    allowed_loss: float

    @property
    def passes(self) -> bool:
        """True if the new one is not worse by more than is allowed."""
        return self.new >= self.old - self.allowed_loss


@dataclass(frozen=True, slots=True)
class Degraded:
    """A problem on which the new model lost."""

    problem: str
    old_efficiency: float
    new_efficiency: float

    @property
    def loss(self) -> float:
        """Share of the old efficiency that is gone."""
        return 1.0 - self.new_efficiency / self.old_efficiency if self.old_efficiency > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both models on all problems; `degraded` has the worst loss first, `checks` what the new one must pass."""

    problems: int
    agreement: float
    differences: tuple[Difference, ...]
    improved: int
    same: int
    degraded: tuple[Degraded, ...]
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the new one may not replace the old one; empty if it may."""
        return tuple(check.failure for check in self.checks if check.failure)

    @property
    def passes(self) -> bool:
        """The verdict."""
        return not self.failures


def compare(parts: Iterable[Dataset], old: Scorer, new: Scorer, thresholds: Thresholds) -> Comparison:
    """Compare the choices by what gives two models' scores of the rows of a dataset, in parts of whole problems.

    A problem is the same if both choices are the same kernel or equally fast.
    """
    found = [_choices(part, old(part), new(part)) for part in parts]
    before, after = (np.concatenate([one.efficiency[model] for one in found]) for model in range(2))
    allowed = (thresholds.mean, thresholds.median, thresholds.p10)
    wanted = {name: (of(before), of(after), difference(of(after), of(before))) for name, of in _FIGURES.items()}
    figures = estimates(
        {f"{name} {i}": one for name, some in wanted.items() for i, one in enumerate(some)}, len(before)
    )
    differences = []
    for name, most in zip(_FIGURES, allowed, strict=True):
        first, second, apart = (figures[f"{name} {i}"] for i in range(3))
        differences.append(Difference(name, first.value, second.value, apart.low, apart.high, most))
    worse = [one for part in found for one in part.degraded]
    worse.sort(key=lambda one: -one.loss)
    return Comparison(
        problems=len(before),
        agreement=float(np.mean(np.concatenate([one.agrees for one in found]))),
        differences=tuple(differences),
        improved=int(np.count_nonzero(after > before)),
        same=int(np.count_nonzero(after == before)),
        degraded=tuple(worse),
        checks=(*map(_check_of, differences), _check_of_worst(worse, thresholds.problem)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """Both models' choices on a part: efficiencies, shape (2, problems), whether they agree, and what lost."""

    efficiency: NDArray[np.float64]
    agrees: NDArray[np.bool_]
    degraded: list[Degraded]


def _choices(part: Dataset, old: NDArray[np.float64], new: NDArray[np.float64]) -> _Choices:
    times = times_of(part)
    rows = np.array([choices(scores, times.problem, times.count) for scores in (old, new)])
    before, after = efficiency = times.efficiency()[rows]
    problems = part.problems()
    worse = [
        Degraded(problems[i].canonical(), float(before[i]), float(after[i])) for i in np.flatnonzero(after < before)
    ]
    return _Choices(efficiency, rows[0] == rows[1], worse)


def _check_of(one: Difference) -> Check:
    detail = f"{one.old:.2%} -> {one.new:.2%}, by {one.low:+.2%} to {one.high:+.2%} (95 %)"
    fall = f"{one.name} efficiency falls from {one.old:.2%} to {one.new:.2%}, by more than {one.allowed_loss:.1%}"
    return Check(f"{one.name} efficiency", "" if one.passes else fall, detail)


def _check_of_worst(worse: Sequence[Degraded], most: float) -> Check:
    name = f"no problem loses more than {most:.0%}"
    lost = [one for one in worse if one.loss > most]
    if not lost:
        return Check(name)
    detail = "\n".join(f"{one.problem}: {one.old_efficiency:.2%} -> {one.new_efficiency:.2%}" for one in lost)
    return Check(name, f"{len(lost)} problems lose more than {most:.0%}, the worst {lost[0].loss:.1%}", detail)
