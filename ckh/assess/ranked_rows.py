"""The measured rows of problems in a model's order, from which all figures of a model's choices are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices, places

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset

    Ranker: TypeAlias = Callable[[Dataset], "RankedRows"]


@dataclass(frozen=True, slots=True, eq=False)
class RankedRows:
    """A model's answer for each problem of a dataset, joined with the measured rows."""

    place: NDArray[np.float64]
    """Rank of each row's kernel in the answer, 0 for the first; infinite if it is not ranked; shape (rows,)."""
    first: NDArray[np.object_]  # name of each answer's first kernel, empty if the problem is refused; shape (problems,)
    refusal: NDArray[np.object_]  # reason why a problem has no kernel, empty if it has one; shape (problems,)
    tflops: NDArray[np.float64]  # predicted speed of each row, NaN if unknown; shape (rows,)
    first_tflops: NDArray[np.float64]
    """Predicted speed of each answer's first kernel, NaN if unknown; shape (problems,)."""

    @classmethod
    def by_scores(cls, dataset: Dataset, scores: NDArray[np.float64]) -> RankedRows:
        """Rank only the measured rows by score, highest first: the first choice is always measured."""
        problem = dataset.problem_ids
        count = int(problem.max()) + 1
        first = dataset.frame["kernel"].to_numpy(dtype=object)[choices(scores, problem, count)]
        nothing = np.full(count, "", dtype=object)
        return cls(
            places(scores, problem).astype(np.float64),
            first,
            nothing,
            np.full(len(scores), np.nan),
            np.full(count, np.nan),
        )

    def best_ranked(self, problem: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the best-ranked measured row, shape (problems,); arbitrary if none is ranked."""
        return choices(-self.place, problem, len(self.first))

    def is_measured(self, problem: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mask of problems where the answer's first kernel was measured, shape (problems,)."""
        return np.asarray(self.place[self.best_ranked(problem)] == 0)

    def efficiency(self, times: Times) -> NDArray[np.float64]:
        """Efficiency of each answer's first kernel, NaN where it was never measured, shape (problems,)."""
        chosen = times.efficiency()[self.best_ranked(times.problem)]
        return np.where(self.is_measured(times.problem), chosen, np.nan)

    def ranks_any(self, problem: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mask of problems where any measured kernel is a candidate, shape (problems,)."""
        return np.isfinite(self.place[self.best_ranked(problem)])

    def ranks_best(self, times: Times) -> NDArray[np.bool_]:
        """Mask of problems where the fastest measured kernel is a candidate, shape (problems,)."""
        ranks_best = np.zeros(times.count, dtype=bool)
        ranks_best[times.problem[(times.efficiency() >= 1.0) & np.isfinite(self.place)]] = True
        return ranks_best


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of a model's answers by measurements."""

    problems: int
    """Problems with a measured time."""
    coverage: float
    """Share of problems whose choice was measured and whose fastest measured kernel is a candidate."""
    refused: int
    """Problems without an applicable kernel."""
    not_measured: int
    """Problems whose choice was never measured."""
    best_no_candidate: int
    """Problems whose answer lacks the fastest measured kernel."""
    refusal: str
    """Reason of the first refusal; empty if there is none."""

    @property
    def judged(self) -> int:
        """Number of problems whose choice was measured."""
        return self.problems - self.refused - self.not_measured

    def lines(self) -> list[str]:
        """Return sentences on incomplete coverage; empty if coverage is complete."""
        if self.coverage == 1.0:
            return []
        counts = {
            "refused, no applicable kernel": self.refused,
            "choice not measured": self.not_measured,
            "fastest measured kernel not a candidate": self.best_no_candidate,
        }
        said = [f"  {words}: {count} of {self.problems} problems" for words, count in counts.items() if count]
        what = "problems whose choice was measured and whose fastest measured kernel is a candidate"
        refusal = [f"  the first refusal: {self.refusal}"] if self.refusal else []
        return [f"coverage {self.coverage:.2%}: {what}", *said, *refusal]


@dataclass(frozen=True, slots=True, eq=False)
class CoverageOfPart:
    """Inputs of `Coverage` for a part of the problems, shape (problems,) each."""

    is_refused: NDArray[np.bool_]
    is_measured: NDArray[np.bool_]
    ranks_best: NDArray[np.bool_]
    refusal: str


def coverage_of(ranked: RankedRows, times: Times) -> CoverageOfPart:
    """Compute the coverage of a part of the problems."""
    refusals = [text for text in ranked.refusal if text]
    return CoverageOfPart(
        ranked.refusal != "",
        ranked.is_measured(times.problem),
        ranked.ranks_best(times),
        refusals[0] if refusals else "",
    )


def coverage(parts: list[CoverageOfPart]) -> Coverage:
    """Combine the coverage of all parts."""
    refused, measured, best = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("is_refused", "is_measured", "ranks_best")
    )
    return Coverage(
        problems=len(refused),
        coverage=float((measured & best).mean()),
        refused=int(refused.sum()),
        not_measured=int((~refused & ~measured).sum()),
        best_no_candidate=int((~refused & ~best).sum()),
        refusal=next((part.refusal for part in parts if part.refusal), ""),
    )
