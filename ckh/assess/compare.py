"""An old model against a new one on the same measured problems, and whether the new one may replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.measured import times_of
from ckh.assess.metrics import choices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much worse the new model may be, in efficiency. `problem`: on any single problem, relative."""

    mean: float = 0.005
    median: float = 0.005
    p10: float = 0.02
    problem: float = 0.10


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of both models."""

    name: str
    old: float
    new: float
    allowed_loss: float

    @property
    def passes(self) -> bool:
        """Whether the new one is not worse by more than is allowed."""
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
    """Both models on all problems; `degraded` has the worst loss first. `failures` is empty if the new one passes."""

    problems: int
    agreement: float
    differences: tuple[Difference, ...]
    improved: int
    same: int
    degraded: tuple[Degraded, ...]
    failures: tuple[str, ...]

    @property
    def passes(self) -> bool:
        """The verdict."""
        return not self.failures


def compare(dataset: Dataset, old: NDArray[np.float64], new: NDArray[np.float64], thresholds: Thresholds) -> Comparison:
    """Compare the choices by two models' scores, shape (rows,) each.

    A problem is the same if both choices are the same kernel or equally fast.
    """
    times = times_of(dataset)
    rows = [choices(scores, times.problem, times.count) for scores in (old, new)]
    before, after = (times.efficiency()[chosen] for chosen in rows)
    differences = (
        Difference("mean", float(before.mean()), float(after.mean()), thresholds.mean),
        Difference("median", float(np.median(before)), float(np.median(after)), thresholds.median),
        Difference("P10", float(np.percentile(before, 10)), float(np.percentile(after, 10)), thresholds.p10),
    )
    problems = dataset.problems()
    worse = [
        Degraded(problems[i].canonical(), float(before[i]), float(after[i])) for i in np.flatnonzero(after < before)
    ]
    worse.sort(key=lambda one: -one.loss)
    failures = [
        f"{one.name} efficiency falls from {one.old:.2%} to {one.new:.2%}, by more than {one.allowed_loss:.1%}"
        for one in differences
        if not one.passes
    ]
    if worse and worse[0].loss > thresholds.problem:
        count = sum(one.loss > thresholds.problem for one in worse)
        failures.append(f"{count} problems lose more than {thresholds.problem:.0%}, the worst {worse[0].loss:.1%}")
    return Comparison(
        problems=times.count,
        agreement=float(np.mean(rows[0] == rows[1])),
        differences=differences,
        improved=int(np.count_nonzero(after > before)),
        same=int(np.count_nonzero(after == before)),
        degraded=tuple(worse),
        failures=tuple(failures),
    )
