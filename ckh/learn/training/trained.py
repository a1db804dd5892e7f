"""`Trained`: the in-memory result of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.training import RANK, TFLOPS

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset
    from ckh.data.parts import Drawn
    from ckh.learn.models.calibration import Calibration
    from ckh.learn.models.spec import EstimateTerm
    from ckh.learn.training.halving import Tuning
    from ckh.learn.training.warm_start import Start, StartComparison
    from ckh.training import TrainOptions


@dataclass(frozen=True, slots=True)
class FoldMetrics:
    """Metrics of a fold.

    `rmse` and `r2` refer to the label (log1p if the target is); LambdaRank's scores have no scale, so these are None.
    Efficiencies are given only if the target ranks. `best_iteration` includes the trees of a warm start.
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
class MiningRound:
    """Result of a round of hard-example mining; round 0 has equal weights."""

    number: int
    raised: int
    """Problems with increased weight."""
    mean_efficiency: float
    p10_efficiency: float


@dataclass(frozen=True, slots=True)
class Mined:
    """All rounds, and the one that is kept: the highest mean efficiency, the first of ties."""

    rounds: tuple[MiningRound, ...]
    kept: int


@dataclass(frozen=True, slots=True)
class TrainedTarget:
    """A final model as LightGBM's text, its folds, and the split counts of its features.

    Out-of-fold efficiencies are given for all problems in order, each by the model that did not see the problem. Trees
    and counts are of the whole model, including a warm start's. The ranking target also has the comparison with its
    start, if both have folds, and the rounds of mining; and the analytic estimate's part in its scores.
    """

    text: str
    trees: int
    folds: tuple[FoldMetrics, ...]
    importances: dict[str, int]
    oof_efficiency: tuple[float, ...] | None
    comparison: StartComparison | None = None
    mined: Mined | None = None
    estimate: EstimateTerm | None = None

    @property
    def oof_mean_efficiency(self) -> float | None:
        """Mean over problems."""
        return None if self.oof_efficiency is None else float(np.mean(self.oof_efficiency))

    @property
    def oof_p10_efficiency(self) -> float | None:
        """10th percentile over problems."""
        return None if self.oof_efficiency is None else float(np.percentile(self.oof_efficiency, 10))


@dataclass(frozen=True, slots=True)
class Today:
    """The present answer for such data, and the comparison with it.

    Attributes:
        source: folder of the model, or name of the estimate.
        comparison: its choices compared with the held-out choices of the new model.
    """

    source: str
    comparison: StartComparison

    def to_dict(self) -> dict[str, Any]:
        """Serialize for JSON."""
        return {"model": self.source, "validation": self.comparison.to_dict()}


@dataclass(frozen=True, slots=True)
class Trained:
    """All results of training, in memory.

    `today` is the comparison with the model that answered for such data before, if made.
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
    spread_over: int = 0  # number of workers that trained the final models together, on all rows

    @property
    def rank_by(self) -> str:
        """The target that orders kernels."""
        return RANK if RANK in self.targets else TFLOPS
