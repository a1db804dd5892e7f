"""Comparison of an old and a new model on the same measured problems, for a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ckh.assess.intervals import Figure, difference, estimates, mean_of, percentile_of
from ckh.assess.ranked_rows import Coverage, CoverageOfPart, RankedRows, coverage, coverage_of
from ckh.assess.times import times_of
from ckh.assess.verdict import Check
from ckh.documents import Document
from ckh.errors import DataError
from ckh.records import Record

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
    """Allowed losses of efficiency; `problem` is the relative loss on any single problem."""

    mean: float = 0.005
    median: float = 0.005
    p10: float = 0.02
    problem: float = 0.10


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure for both models."""

    name: str
    old: float
    new: float
    low: float
    """Paired 95 % confidence interval of new - old."""
    high: float
    allowed_loss: float

    @property
    def passes(self) -> bool:
        """Return True if the loss is within the allowed loss."""
        return self.new >= self.old - self.allowed_loss


@dataclass(frozen=True, slots=True)
class Degraded:
    """A problem on which the new model's choice is slower."""

    problem: str
    old_efficiency: float
    new_efficiency: float

    @property
    def loss(self) -> float:
        """Relative loss of efficiency."""
        return 1.0 - self.new_efficiency / self.old_efficiency if self.old_efficiency > 0 else 0.0


class Comparison(Record):
    """Comparison of two models."""

    json_properties: ClassVar = ("failures", "passes")

    problems: int
    """Problems where both choices were measured; differences and counts refer to these."""
    agreement: float
    """Share of problems with the same choice, among those that both models answer."""
    old_coverage: Coverage
    new_coverage: Coverage
    differences: tuple[Difference, ...]
    improved: int
    """Problems with a faster new choice."""
    same: int
    """Problems with equal speed."""
    degraded: tuple[Degraded, ...]
    """Problems with a slower new choice, largest loss first."""
    checks: tuple[Check, ...]
    """Checks of the gate."""

    @property
    def failures(self) -> tuple[str, ...]:
        """Failed checks; empty if the gate passes."""
        return tuple(check.failure for check in self.checks if check.failure)

    @property
    def passes(self) -> bool:
        """True if the gate passes."""
        return not self.failures


class CompareDocument(Comparison, Document):
    """ckh validate compare --json."""

    schema = "validate_compare"

    old: str
    """Folder of the old model."""
    new: str
    """Folder of the new model."""
    among: str
    """Kernels to choose among: predict's candidates, or the measured kernels alone."""


def compare(parts: Iterable[Dataset], old: Ranker, new: Ranker, thresholds: Thresholds, least: int = 1) -> Comparison:
    """Compare two models' answers on a dataset, in parts of whole problems.

    Two choices are the same if they are the same kernel or equally fast.
    """
    judged = [_choices(part, old(part), new(part)) for part in parts]
    efficiency = np.concatenate([choices.efficiency for choices in judged], axis=1)
    is_judged = np.isfinite(efficiency).all(axis=0)
    if int(is_judged.sum()) < least:
        raise too_few_choices(int(is_judged.sum()), is_judged.size, least, "both choices were")
    before, after = efficiency[:, is_judged]
    allowed = (thresholds.mean, thresholds.median, thresholds.p10)
    wanted = {name: (of(before), of(after), difference(of(after), of(before))) for name, of in _FIGURES.items()}
    figures = estimates(
        {f"{name} {i}": figure for name, triple in wanted.items() for i, figure in enumerate(triple)}, len(before)
    )
    differences = []
    for name, most in zip(_FIGURES, allowed, strict=True):
        first, second, apart = (figures[f"{name} {i}"] for i in range(3))
        differences.append(Difference(name, first.value, second.value, apart.low, apart.high, most))
    worse = sorted((degraded for choices in judged for degraded in choices.degraded), key=lambda lost: -lost.loss)
    refused = np.concatenate([choices.newly_refused for choices in judged]).tolist()
    agrees = np.concatenate([choices.agrees for choices in judged])
    return Comparison(
        problems=len(before),
        agreement=float(np.mean(agrees)) if len(agrees) else 0.0,
        old_coverage=coverage([choices.coverage[0] for choices in judged]),
        new_coverage=coverage([choices.coverage[1] for choices in judged]),
        differences=tuple(differences),
        improved=int(np.count_nonzero(after > before)),
        same=int(np.count_nonzero(after == before)),
        degraded=tuple(worse),
        checks=(
            *map(_check_of, differences),
            _check_of_worst(worse, thresholds.problem),
            Check(
                "no problem is refused that the old model answers",
                f"{len(refused)} problems are refused that the old model answers" if refused else "",
                "\n".join(refused),
            ),
        ),
    )


def too_few_choices(judged: int, problems: int, least: int, whose: str = "the choice was") -> DataError:
    """Error for too few measured choices."""
    return DataError(
        f"no verdict: {whose} measured on {judged} of {problems} problems, {least} required",
        "measure the kernels that predict chooses, set --min-problems, or rank the measured kernels alone with "
        "--among measured",
        code="few-problems",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """Both models' choices on a part."""

    efficiency: NDArray[np.float64]  # NaN for unmeasured choices, shape (2, problems)
    agrees: NDArray[np.bool_]  # mask of equal choices, among problems that both answer
    degraded: list[Degraded]  # problems with a slower new choice
    newly_refused: NDArray[np.object_]  # problems that only the old model answers
    coverage: tuple[CoverageOfPart, CoverageOfPart]  # coverage of both


def _choices(part: Dataset, old: RankedRows, new: RankedRows) -> _Choices:
    times = times_of(part)
    efficiency = np.array([ranked.efficiency(times) for ranked in (old, new)])
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


def _check_of(figure: Difference) -> Check:
    detail = f"{figure.old:.2%} -> {figure.new:.2%}, by {figure.low:+.2%} to {figure.high:+.2%} (95 %)"
    name = f"{figure.name} efficiency"
    fall = f"{name} falls from {figure.old:.2%} to {figure.new:.2%}, by more than {figure.allowed_loss:.1%}"
    return Check(name, "" if figure.passes else fall, detail)


def _check_of_worst(worse: Sequence[Degraded], most: float) -> Check:
    name = f"no problem loses more than {most:.0%}"
    lost = [degraded for degraded in worse if degraded.loss > most]
    if not lost:
        return Check(name)
    detail = "\n".join(
        f"{degraded.problem}: {degraded.old_efficiency:.2%} -> {degraded.new_efficiency:.2%}" for degraded in lost
    )
    return Check(name, f"{len(lost)} problems lose more than {most:.0%}, the worst {lost[0].loss:.1%}", detail)
