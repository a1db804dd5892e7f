"""Training options: targets, objectives, and LightGBM's parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ckh.declared import Declared, declared
from ckh.strenum import StrEnum

TFLOPS, LATENCY, BANDWIDTH, RANK = "tflops", "latency", "bandwidth", "rank"
# Target -> dataset column. `rank` is not a quantity: it only orders the kernels of a problem.
TARGET_COLUMNS = {TFLOPS: "tflops", LATENCY: "latency_ms", BANDWIDTH: "bandwidth_gb_s"}


class RankObjective(StrEnum):
    """Objectives of the ranking model.

    EFFICIENCY regresses TFLOPS / best TFLOPS of the problem, whose slow outliers are bounded by 0; RELATIVE regresses
    its logarithm; LAMBDARANK optimizes the order itself; with TFLOPS there is no ranking model, and the model of TFLOPS
    ranks.
    """

    EFFICIENCY = "efficiency"
    RELATIVE = "relative"
    LAMBDARANK = "lambdarank"
    TFLOPS = "tflops"


class Labels(StrEnum):
    """Labels of the kernels of a problem.

    MEASURED: times of the kernels in the data. WINNERS: kernels in the data were the best of all candidates, and
    nothing else is known; only LAMBDARANK can be trained on that.
    """

    MEASURED = "measured"
    WINNERS = "winners"


TARGETS = tuple(TARGET_COLUMNS)
# Trained on log1p, as AMD's models.
LOG_TARGETS = (TFLOPS, BANDWIDTH)


@dataclass(frozen=True, slots=True)
class TreeParams:
    """LightGBM's parameters, with AMD's values as defaults. `subsample_freq` makes `subsample` take effect.

    `path_smooth` shrinks leaves with few rows towards their parents' values; 0 disables it.
    """

    n_estimators: int = declared(
        Declared("Maximum number of boosting rounds.  [400 or 200]", typed=("--trees",), low=1), default=2000
    )
    learning_rate: float = 0.02
    num_leaves: int = declared(
        Declared("Leaves per tree.  [31 to 255]", typed=("--leaves",), low=2, high=4096), default=255
    )
    max_depth: int = 15
    min_child_samples: int = 10
    subsample: float = 0.85
    subsample_freq: int = 1
    colsample_bytree: float = 0.85
    reg_alpha: float = 0.05
    reg_lambda: float = 0.5
    path_smooth: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Parameters by name, as LGBMRegressor takes them."""
        return {name: getattr(self, name) for name in TreeParams.__slots__}


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Training options.

    `targets` are modelled in addition to the order: TFLOPS, which predictions include; latency and bandwidth only if
    requested, since only `Model.predict` and the export to LightGBM use them. `jobs` threads do not affect the result.
    With 0 folds there is no cross-validation, and models have all of their trees. With a `prior` other than 0, where
    the analytic estimate of all kernels is known, it is part of the scores (`learn.analytic.corrected`).
    """

    targets: tuple[str, ...] = (TFLOPS,)
    rank: RankObjective = declared(
        Declared("Objective of the ranking model.  [efficiency]"), default=RankObjective.RELATIVE
    )
    labels: Labels = declared(
        Declared("Labels of the data: times, or only the winner of each problem.  [measured]"),
        default=Labels.MEASURED,
    )
    folds: int = declared(Declared("Folds of the cross-validation; 0: none.  [5]", low=0, high=50), default=5)
    early_stopping: int = 50
    seed: int = declared(Declared("Random seed.  [42]", low=0), default=42)
    jobs: int = declared(
        Declared(
            "Maximum number of threads.  [one per core, fewer for few rows]", typed=("--jobs", "-j"), low=1, high=1024
        ),
        default=1,
    )
    prior: float = 0.0
    params: TreeParams = field(default_factory=TreeParams)

    @property
    def rank_target(self) -> str:
        """Target whose model ranks kernels."""
        return TFLOPS if self.rank is RankObjective.TFLOPS else RANK

    @property
    def all_targets(self) -> tuple[str, ...]:
        """Trained targets, in order."""
        return self.targets + (() if self.rank is RankObjective.TFLOPS else (RANK,))


# Maximum number of rows for each default size of trees; above the last, `_LARGE`.
_SIZES = (
    (15_000, TreeParams(400, 0.05, 31, colsample_bytree=0.4, path_smooth=20.0)),
    (60_000, TreeParams(400, 0.05, 63, colsample_bytree=0.4, path_smooth=5.0)),
)
_LARGE = TreeParams(200, 0.1, 255, colsample_bytree=0.4)
_EARLY_OF_LARGE = 25  # rounds, at twice the learning rate
_PRIOR = 1.0

# Trees of unlimited depth on all rows, with little regularization.
PLAIN_TREES = TreeParams(
    max_depth=-1, min_child_samples=20, subsample=1.0, subsample_freq=0, reg_alpha=0.0, reg_lambda=1.0
)
_OF_WINNERS = replace(
    PLAIN_TREES, n_estimators=60, learning_rate=0.1, num_leaves=15, min_child_samples=3, colsample_bytree=0.3
)


def winner_options() -> TrainOptions:
    """Training options of winners-only models whose operation has no recipe (`benchmarks/aiter_folds.py`)."""
    return TrainOptions(
        targets=(), rank=RankObjective.LAMBDARANK, labels=Labels.WINNERS, folds=0, seed=1, params=_OF_WINNERS
    )


def sized_options(rows: int) -> TrainOptions:
    """Default training options, by the number of usable rows (`benchmarks/objectives.py`)."""
    for most, params in _SIZES:
        if rows <= most:
            prior = _PRIOR if params is _SIZES[0][1] else 0.0
            return TrainOptions(rank=RankObjective.EFFICIENCY, prior=prior, params=params)
    return TrainOptions(rank=RankObjective.EFFICIENCY, early_stopping=_EARLY_OF_LARGE, params=_LARGE)
