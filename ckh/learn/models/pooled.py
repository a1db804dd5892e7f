"""Scores of the kernels of many problems with mostly the same kernels, prepared as one pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.kernels.table import KernelTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem


class PooledScores:
    """A model's scores of kernels given by index.

    Preparing a pool takes longer than scoring. So the pool holds the kernels of all problems scored so far, and grows
    when a problem has others.
    """

    def __init__(self, model: Model, kernels: Sequence[Kernel]) -> None:
        self._model = model
        self._kernels = KernelTable.of(model.spec.op.kernels.type, kernels)  # whose columns are read many times
        self._numbers = np.empty(0, dtype=np.int64)
        self._pool: Sequence[Kernel] = ()

    def __call__(self, problem: Problem, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score kernels on a problem, shape (numbers,), higher is faster."""
        if not np.isin(numbers, self._numbers).all():
            self._numbers = np.union1d(self._numbers, numbers)
            self._pool = self._kernels.take(self._numbers)
        scores: NDArray[np.float64] = self._model.score_pool([problem], self._pool, tflops=False)[0][0]
        return scores[np.searchsorted(self._numbers, numbers)]
