"""`Trained`: what training gives, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.training import RANK, TFLOPS

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset
    from ckh.data.sample import Drawn
    from ckh.learn.models.calibration import Calibration
    from ckh.learn.training.halving import Tuning
    from ckh.learn.training.mining import Mined
    from ckh.learn.training.warm_start import Start, StartComparison
    from ckh.training import TrainOptions


@dataclass(frozen=True, slots=True)
class FoldMetrics:
    """How a fold went.

    `rmse` and `r2` are of the label (log1p where the target is); LambdaRank's scores have no scale, so none there.
    Efficiencies only where the target ranks. `best_iteration` counts the trees of a warm start too.
    """

    fold: int
    rmse: float | None
    r2: float | None
    mean_efficiency: float | None
    p10_efficiency: float | None
    train_size: int
    val_size: int
    val_groups: int
    best_iteration: int


@dataclass(frozen=True, slots=True)
class TrainedTarget:
    """A final model as LightGBM's text, its folds, and the split counts of its features.

    The out-of-fold efficiencies are those of all problems in their order, each of the choice by the fold that had not
    seen it. Trees and counts are of the whole model, a warm start's among them. What orders kernels is compared with
    its start, if both had folds, and has the rounds of mining.
    """

    text: str
    trees: int
    folds: tuple[FoldMetrics, ...]
    importances: dict[str, int]
    oof_efficiency: tuple[float, ...] | None
    comparison: StartComparison | None = None
    mined: Mined | None = None

    @property
    def oof_mean_efficiency(self) -> float | None:
        """Its mean over problems."""
        return None if self.oof_efficiency is None else float(np.mean(self.oof_efficiency))

    @property
    def oof_p10_efficiency(self) -> float | None:
        """What a tenth of the problems lie below."""
        return None if self.oof_efficiency is None else float(np.percentile(self.oof_efficiency, 10))


@dataclass(frozen=True, slots=True)
class Today:
    """What answers today, and the comparison with it.

    Attributes:
        source: the folder of the model, or what the estimate is called.
        comparison: of its choices with the held-out ones of the new model.
    """

    source: str
    comparison: StartComparison

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"model": self.source, "validation": self.comparison.to_dict()}


@dataclass(frozen=True, slots=True)
class Trained:
    """All results of training, in memory.

    `today` compares it with the model that has answered for such data so far, if that was done.
    """

    dataset: Dataset
    all_rows: int
    options: TrainOptions
    feature_names: tuple[str, ...]
    categorical: tuple[str, ...]
    targets: dict[str, TrainedTarget]
    params: dict[str, Any]
    start: Start | None = None
    tuning: Tuning | None = None
    calibration: Calibration | None = None
    sample: Drawn | None = None
    today: Today | None = None
    spread_over: int = 0  # workers that fitted the final models together, to all rows

    @property
    def rank_by(self) -> str:
        """The target that orders kernels."""
        return RANK if RANK in self.targets else TFLOPS
