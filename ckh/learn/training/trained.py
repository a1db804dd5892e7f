"""`Trained`: the in-memory result of training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.training import RANK, TFLOPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.data.parts import Drawn
    from ckh.learn.models.calibration import Calibration
    from ckh.learn.models.spec import EstimateTerm
    from ckh.learn.training.warm_start import Start
    from ckh.training import TrainOptions

_ENOUGH = 10  # problems; a tenth percentile of fewer is not meaningful


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
class StartComparison:
    """Efficiency of a new model and of its start, or of the model in use, on the same problems.

    The problems were held out from the new model. `seen` of them are training problems of the other, which biases the
    result upwards; None if unknown.
    """

    problems: int
    seen: int | None
    start_mean_efficiency: float
    start_p10_efficiency: float
    mean_efficiency: float
    p10_efficiency: float

    @property
    def worse(self) -> tuple[str, ...]:
        """Figures that decreased: the mean, P10, both or none."""
        pairs = {
            "mean": (self.start_mean_efficiency, self.mean_efficiency),
            "P10": (self.start_p10_efficiency, self.p10_efficiency),
        }
        return tuple(name for name, (before, after) in pairs.items() if after < before)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a JSON document."""
        return {**asdict(self), "worse": bool(self.worse)}


def compare(
    before: NDArray[np.float64], after: NDArray[np.float64], is_seen: NDArray[np.bool_] | None
) -> StartComparison:
    """Compare efficiencies, shape (problems,), on the problems that were not seen before, if they are enough."""
    used = np.ones(len(before), dtype=bool)
    if is_seen is not None and int((~is_seen).sum()) >= _ENOUGH:
        used = ~is_seen
    return StartComparison(
        problems=int(used.sum()),
        seen=None if is_seen is None else int((is_seen & used).sum()),
        start_mean_efficiency=float(before[used].mean()),
        start_p10_efficiency=float(np.percentile(before[used], 10)),
        mean_efficiency=float(after[used].mean()),
        p10_efficiency=float(np.percentile(after[used], 10)),
    )


@dataclass(frozen=True, slots=True)
class TrainedTarget:
    """A final model as LightGBM's text, its folds, and the split counts of its features.

    Out-of-fold efficiencies are given for all problems in order, each by the model that did not see the problem. Trees
    and counts are of the whole model, including a warm start's. The ranking target also has the comparison with its
    start, if both have folds, and the analytic estimate's part in its scores.
    """

    text: str
    trees: int
    folds: tuple[FoldMetrics, ...]
    importances: dict[str, int]
    oof_efficiency: tuple[float, ...] | None
    comparison: StartComparison | None = None
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
    """The present answer for such data, a model's folder or an estimate's name, compared with the new model."""

    source: str
    comparison: StartComparison


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
    calibration: Calibration | None = None
    sample: Drawn | None = None
    today: Today | None = None

    @property
    def rank_by(self) -> str:
        """The target that orders kernels."""
        return RANK if RANK in self.targets else TFLOPS
