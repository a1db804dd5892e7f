"""An old model against a new one on the same measured problems, and whether the new one may replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import Figure, difference, estimates, mean_of, percentile_of
from ckh.assess.measured import times_of
from ckh.assess.ranked_rows import Coverage, CoverageOfPart, RankedRows, coverage, coverage_of
from ckh.assess.verdict import Check
from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ckh.assess.ranked_rows import Ranker
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
    """Both models' answers.

    Attributes:
        problems: on how many both choices were measured; differences and counts are of these.
        agreement: share of the problems that both answer on which both choose the same kernel.
        old_coverage: how far the old model's answers and the measurements meet.
        new_coverage: of the new one.
        differences: of figures.
        improved: on how many problems the new choice is faster.
        same: on how many it is as fast.
        degraded: problems on which it is slower, the worst loss first.
        checks: what the new one must pass.
    """

    problems: int
    agreement: float
    old_coverage: Coverage
    new_coverage: Coverage
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


def compare(parts: Iterable[Dataset], old: Ranker, new: Ranker, thresholds: Thresholds, least: int = 1) -> Comparison:
    """Compare two models' answers on a dataset, in parts of whole problems.

    A problem is the same if both choices are the same kernel or equally fast.

    Args:
        parts: the rows.
        old: gives a part's rows in the old model's order.
        new: in the new one's.
        thresholds: how much worse the new one may be.
        least: on how many problems both choices must have been measured.

    Raises:
        DataError: these are fewer.
    """
    found = [_choices(part, old(part), new(part)) for part in parts]
    efficiency = np.concatenate([one.efficiency for one in found], axis=1)
    is_judged = np.isfinite(efficiency).all(axis=0)
    if int(is_judged.sum()) < least:
        raise too_few_choices(int(is_judged.sum()), is_judged.size, least, "both choices were")
    before, after = efficiency[:, is_judged]
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
    refused = np.concatenate([one.newly_refused for one in found]).tolist()
    agrees = np.concatenate([one.agrees for one in found])
    return Comparison(
        problems=len(before),
        agreement=float(np.mean(agrees)) if len(agrees) else 0.0,
        old_coverage=coverage([one.coverage[0] for one in found]),
        new_coverage=coverage([one.coverage[1] for one in found]),
        differences=tuple(differences),
        improved=int(np.count_nonzero(after > before)),
        same=int(np.count_nonzero(after == before)),
        degraded=tuple(worse),
        checks=(
            *map(_check_of, differences),
            _check_of_worst(worse, thresholds.problem),
            _check_of_refused(refused),
        ),
    )


def too_few_choices(judged: int, problems: int, least: int, whose: str = "the choice was") -> DataError:
    """The error of data in which too few choices were measured for a verdict."""
    return DataError(
        f"no verdict: {whose} measured on {judged} of {problems} problems, {least} required",
        "measure the kernels that predict chooses, set --min-problems, or rank the measured kernels alone with "
        "--among measured",
        code="few-problems",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """Both models' choices on a part.

    Attributes:
        efficiency: NaN where the choice was never measured, shape (2, problems).
        agrees: whether both are the same kernel, of the problems that both answer.
        degraded: what the new model lost on.
        newly_refused: canonical texts of the problems that the old model alone answers.
        coverage: of both.
    """

    efficiency: NDArray[np.float64]
    agrees: NDArray[np.bool_]
    degraded: list[Degraded]
    newly_refused: NDArray[np.object_]
    coverage: tuple[CoverageOfPart, CoverageOfPart]


def _choices(part: Dataset, old: RankedRows, new: RankedRows) -> _Choices:
    times = times_of(part)
    efficiency = np.array(
        [
            np.where(one.is_measured(times.problem), times.efficiency()[one.best_ranked(times.problem)], np.nan)
            for one in (old, new)
        ]
    )
    before, after = efficiency
    problems = part.problems()
    worse = [
        Degraded(problems[i].canonical(), float(before[i]), float(after[i])) for i in np.flatnonzero(after < before)
    ]
    are_answered = (old.first != "") & (new.first != "")
    newly_refused = [problems[i].canonical() for i in np.flatnonzero((old.first != "") & (new.first == ""))]
    return _Choices(
        efficiency,
        (old.first == new.first)[are_answered],
        worse,
        np.array(newly_refused, dtype=object),
        (coverage_of(old, times), coverage_of(new, times)),
    )


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


def _check_of_refused(refused: Sequence[str]) -> Check:
    name = "no problem is refused that the old model answers"
    if not refused:
        return Check(name)
    return Check(name, f"{len(refused)} problems are refused that the old model answers", "\n".join(refused))
