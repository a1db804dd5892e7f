"""Models of other GPUs or element types, completed by the analytic estimate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ckh.learn.analytic.completed import Completion, filled, tie_breaks
from ckh.learn.models.artifact import Model
from ckh.learn.models.scoring import Remembered
from ckh.training import RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.kernels.pools import Knows
    from ckh.ops.base import Kernel, Problem

_POOLS = 64  # pools with a cached mask of known kernels


class CompletedModel(Model, ABC):
    """A model whose scores the analytic estimate completes."""

    completion: ClassVar[Completion]

    def __init__(self, model: Model, estimate: Model) -> None:
        super().__init__(model.path, model.spec)
        self.estimate = estimate

    def score_pool(
        self,
        problems: Sequence[Problem],
        pool: Sequence[Kernel],
        *,
        tflops: bool = True,  # noqa: ARG002 - as of a model
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Complete the scores, shape (problems, kernels), without speeds."""
        score, _ = super().score_pool(problems, pool, tflops=False)
        return self._completed(score, problems, pool), None

    def predict(self, problem: Problem, kernels: Sequence[Kernel], target: str = RANK) -> NDArray[np.float64]:
        """Scores of kernels, shape (kernels,)."""
        assert target == RANK
        scores: NDArray[np.float64] = self.score_pool([problem], tuple(kernels))[0][0]
        return scores

    @abstractmethod
    def _completed(
        self, score: NDArray[np.float64], problems: Sequence[Problem], pool: Sequence[Kernel]
    ) -> NDArray[np.float64]:
        """Complete the model's scores, shape (problems, kernels)."""

    def _estimated(self, problems: Sequence[Problem], pool: Sequence[Kernel]) -> list[list[float]]:
        """Negative estimated times of each problem's kernels."""
        result: list[list[float]] = self.estimate.score_pool(problems, pool, tflops=False)[0].tolist()
        return result


class FilledModel(CompletedModel):
    """Ranks known kernels by the model's trees, and unknown kernels by the estimate."""

    completion = Completion.FILLED

    def __init__(self, model: Model, knows: Knows, estimate: Model) -> None:
        super().__init__(model, estimate)
        self.candidates_of = estimate.path
        self._knows = knows
        self._known: Remembered[tuple[Sequence[Kernel], NDArray[np.bool_]]] = Remembered(_POOLS)

    def is_known(self, pool: Sequence[Kernel]) -> NDArray[np.bool_]:
        """Mask of kernels known to the model, shape (kernels,)."""
        result = self._known.get(id(pool))
        if result is None:
            result = pool, np.array([not self._knows.reason(kernel) for kernel in pool], np.bool_)
            self._known.put(id(pool), result)
        return result[1]

    def _completed(
        self, score: NDArray[np.float64], problems: Sequence[Problem], pool: Sequence[Kernel]
    ) -> NDArray[np.float64]:
        """Return the scores of known kernels, and for others the estimate on the scale of the known ones."""
        is_known = self.is_known(pool)
        if is_known.all():
            return score
        rows = zip(score.tolist(), self._estimated(problems, pool), strict=True)
        return np.array([filled(own, minus_us, is_known.tolist()) for own, minus_us in rows])


class TieBreakingModel(CompletedModel):
    """Breaks ties of a model by the analytic estimate, e.g. of instructions of another element type."""

    completion = Completion.TIE_BROKEN

    def _completed(
        self, score: NDArray[np.float64], problems: Sequence[Problem], pool: Sequence[Kernel]
    ) -> NDArray[np.float64]:
        """The model's scores, plus at most a billionth by the estimate's rank."""
        estimated = self._estimated(problems, pool)
        return score + [list(map(tie_breaks(minus_us).__getitem__, minus_us)) for minus_us in estimated]
