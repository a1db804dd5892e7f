"""AMD's recipe as a baseline: a model of TFLOPS as AMD's tools train it, on the same data.

One regression of log(1 + TFLOPS) on AMD's features, 2,000 trees of 255 leaves at a learning rate of 0.02, without early
stopping; kernels are ranked by its prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.learn.training.feature_matrix import widened
from ckh.training import TreeParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ckh.assess.times import Scorer
    from ckh.data.dataset import Dataset

_MS_FLOPS_PER_TFLOPS = 1e9
_SEED = 42


def amd_scorer(
    learned_from: Dataset, hardware: Mapping[str, int], jobs: int, params: TreeParams | None = None
) -> Scorer:
    """Train a model of AMD's recipe and return a scorer for datasets of the same operation."""
    import lightgbm

    known = learned_from.valid()
    flops = np.array([problem.flops for problem in known.problems()], dtype=np.float64)[known.problem_ids]
    tflops = flops / known.frame["latency_ms"].to_numpy(dtype=np.float64) / _MS_FLOPS_PER_TFLOPS
    model = lightgbm.LGBMRegressor(
        objective="regression",
        random_state=_SEED,
        n_jobs=jobs,
        deterministic=True,
        force_row_wise=True,
        verbose=-1,
        **(params or TreeParams()).to_dict(),
    )
    model.fit(_matrix(known, hardware), np.log1p(tflops))

    def scores(judged: Dataset) -> NDArray[np.float64]:
        return np.asarray(model.predict(_matrix(judged, hardware)), dtype=np.float64)

    return scores


def _matrix(dataset: Dataset, hardware: Mapping[str, int]) -> NDArray[np.float64]:
    op = dataset.op
    columns = {name: widened(dataset.frame[name].to_numpy()) for name in op.training.input_columns}
    return op.training.engine.matrix(op.training.legacy_columns(columns), hardware, op.training.amd_features)
