"""Models of other GPUs or element types in which the analytic estimate orders what they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.learn.artifact import Model
from ckh.learn.scoring import Remembered
from ckh.training import RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.kernels.pools import Knows
    from ckh.ops.base import Kernel, Problem

_TIE_BREAK = 1e-9  # less than two leaves of trees differ by, more than a double's last digits
_POOLS = 64  # of which it is remembered which kernels are known


class _EstimatedModel(Model):
    """A model whose scores the analytic estimate completes, in a way of each subclass.

    Args:
        model: the model, as one of this GPU and element type, which predicts no speed.
        estimate: what scores all kernels.
    """

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
        """The completed scores, shape (problems, kernels), and no speeds."""
        score, _ = super().score_pool(problems, pool, tflops=False)
        return self._completed(score, problems, pool), None

    def predict(self, problem: Problem, kernels: Sequence[Kernel], target: str = RANK) -> NDArray[np.float64]:
        """The scores of kernels, shape (kernels,)."""
        assert target == RANK
        scores: NDArray[np.float64] = self.score_pool([problem], tuple(kernels))[0][0]
        return scores

    def _completed(
        self, score: NDArray[np.float64], problems: Sequence[Problem], pool: Sequence[Kernel]
    ) -> NDArray[np.float64]:
        raise NotImplementedError


class FilledModel(_EstimatedModel):
    """A model that ranks all kernels: those that it has learned from by its trees, the others by an estimate.

    Args:
        model: the model, as one of this GPU and element type, which predicts no speed.
        knows: the kernels that it has learned from.
        estimate: what scores all kernels.
    """

    def __init__(self, model: Model, knows: Knows, estimate: Model) -> None:
        super().__init__(model, estimate)
        self.candidates_of = estimate.path
        self._knows = knows
        self._known: Remembered[tuple[Sequence[Kernel], NDArray[np.bool_]]] = Remembered(_POOLS)

    def is_known(self, pool: Sequence[Kernel]) -> NDArray[np.bool_]:
        """Which kernels of a pool the model has learned from, shape (kernels,)."""
        found = self._known.get(id(pool))
        if found is None:
            found = pool, np.array([not self._knows.reason(kernel) for kernel in pool], np.bool_)
            self._known.put(id(pool), found)
        return found[1]

    def _completed(
        self, score: NDArray[np.float64], problems: Sequence[Problem], pool: Sequence[Kernel]
    ) -> NDArray[np.float64]:
        """The scores of known kernels, and of others those that the estimate gives on the known ones' scale."""
        is_known = self.is_known(pool)
        if is_known.all():
            return score
        return filled(score, self.estimate.score_pool(problems, pool, tflops=False)[0], is_known)


class TieBreakingModel(_EstimatedModel):
    """A model whose ties the analytic estimate orders, such as instructions that another element type does not have."""

    def _completed(
        self, score: NDArray[np.float64], problems: Sequence[Problem], pool: Sequence[Kernel]
    ) -> NDArray[np.float64]:
        """The model's scores, and up to a billionth by the place in the estimate's."""
        estimated, _ = self.estimate.score_pool(problems, pool, tflops=False)
        return np.asarray(score + _TIE_BREAK * np.stack([_places(row) for row in estimated]))


def _places(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The places of scores among their distinct values, from 0 for the lowest to 1."""
    distinct, places = np.unique(scores, return_inverse=True)
    return np.asarray(places / max(1, len(distinct) - 1))


def filled(
    score: NDArray[np.float64], estimated: NDArray[np.float64], is_known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Scores in which those of unknown kernels are read off a line, the least squares of known scores by estimates.

    The line never falls: a kernel that is estimated to be faster scores no less.

    Args:
        score: a model's scores, those of unknown kernels without meaning; shape (problems, kernels).
        estimated: minus the logarithms of estimated times, the same shape.
        is_known: which kernels the model knows, at least one; shape (kernels,).
    """
    known, mean = estimated[:, is_known], estimated[:, is_known].mean(axis=1, keepdims=True)
    middle = score[:, is_known].mean(axis=1, keepdims=True)
    variance = ((known - mean) ** 2).sum(axis=1, keepdims=True)
    product = ((known - mean) * (score[:, is_known] - middle)).sum(axis=1, keepdims=True)
    slope = np.divide(product, variance, out=np.zeros_like(product), where=variance > 0)
    return np.where(is_known, score, middle + np.maximum(slope, 0.0) * (estimated - mean))
