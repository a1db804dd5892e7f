"""A model as what is searched: its opinion of single kernels, and of a whole space as a prior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.search.kernels.space import look_alikes
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem

_LEAST_TFLOPS = 1e-9
_MOST_LOG = 700.0  # what exp can take


def log_speeds(model: Model, problem: Problem, kernels: Sequence[Kernel]) -> NDArray[np.float64]:
    """How fast the model expects kernels to be: log TFLOPS, or the score it orders by, shape (kernels,).

    Kernels that are the same to the model are ranked once.
    """
    alike = look_alikes(kernels, model)
    scores = model.predict(problem, [kernels[i] for i in alike.first], model.spec.rank_by)
    if model.spec.rank_by == TFLOPS:
        scores = np.log(np.maximum(scores, _LEAST_TFLOPS))
    return np.asarray(np.clip(scores, -_MOST_LOG, _MOST_LOG)[alike.kind])
