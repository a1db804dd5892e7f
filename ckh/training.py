"""Training: targets, objectives, and LightGBM's parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ckh.declared import Declared, declared
from ckh.strenum import StrEnum

TFLOPS, LATENCY, BANDWIDTH, RANK = "tflops", "latency", "bandwidth", "rank"
# Target -> dataset column. `rank` is not a quantity: it only orders the kernels of a problem.
TARGET_COLUMNS = {TFLOPS: "tflops", LATENCY: "latency_ms", BANDWIDTH: "bandwidth_gb_s"}


class RankObjective(StrEnum):
    """The objectives of the model that orders kernels.

    EFFICIENCY regresses TFLOPS / best TFLOPS of the problem, in which an outlier is near 0 and no more; RELATIVE
    regresses its logarithm; LAMBDARANK optimises the order itself; BLEND has the
    trees of both; with TFLOPS there is no such model, and the one of TFLOPS orders.
    """

    EFFICIENCY = "efficiency"
    RELATIVE = "relative"
    LAMBDARANK = "lambdarank"
    BLEND = "blend"
    TFLOPS = "tflops"


class Labels(StrEnum):
    """The labels of the kernels of a problem.

    MEASURED: the times of those that the data hold. WINNERS: that those of the data were the best of all candidates,
    of which nothing else is known; only LAMBDARANK learns from that.
    """

    MEASURED = "measured"
    WINNERS = "winners"


TARGETS = tuple(TARGET_COLUMNS)
# Trained on log1p, as AMD's are.
LOG_TARGETS = (TFLOPS, BANDWIDTH)


@dataclass(frozen=True, slots=True)
class TreeParams:
    """LightGBM's parameters, with AMD's values as defaults. `subsample_freq` makes `subsample` take effect.

    `path_smooth` draws leaves of few rows to their parents' values, 0 not at all.
    """

    n_estimators: int = declared(
        Declared("Maximum number of boosting rounds.  [400 or 200]", typed=("--trees",), low=1), default=2000
    )
    learning_rate: float = declared(Declared("Learning rate.  [0.05 or 0.1]", low=1e-4, high=1.0), default=0.02)
    num_leaves: int = declared(
        Declared("Leaves per tree.  [31 to 255]", typed=("--leaves",), low=2, high=4096), default=255
    )
    max_depth: int = 15
    min_child_samples: int = 10
    subsample: float = 0.85
    subsample_freq: int = 1
    colsample_bytree: float = declared(
        Declared("Share of the features per tree.  [0.4]", typed=("--feature-fraction",), low=0.05, high=1.0),
        default=0.85,
    )
    reg_alpha: float = 0.05
    reg_lambda: float = 0.5
    path_smooth: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """By name, as LGBMRegressor takes them."""
        return {name: getattr(self, name) for name in TreeParams.__slots__}


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How to train.

    `targets` are what is modelled beside the order: TFLOPS, which predictions give; latency and bandwidth only where
    requested, as nothing but `Model.predict` and the export to LightGBM reads them. The model of TFLOPS has the
    parameters `speeds`, or `params` without. `jobs` threads change how long it takes and nothing else. With an
    `ensemble` of several, the model that orders is trained as often, with seeds that follow on `seed`, and has the
    trees of all; cross-validation is of one. A blend is an ensemble of LambdaRanks with one regression, which has the
    parameters `regression`, or `params` without; cross-validation is of a LambdaRank alone. A regression of the order
    weighs rows by their efficiency. With 0 folds there is no cross-validation, and models have all of their trees.
    `mine` rounds give hard problems more weight (`mining`). A regression of efficiency has, weighing `prior` against
    its 1, the trees of a law of time that is fitted to the rows, where the operation has one and each kernel was
    measured often enough (`learn.prior`). With such a law it also has the trees of a LambdaRank, in the scale of its
    own scores and weighing `lambdarank` against their 1.
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
    ensemble: int = declared(
        Declared("Number of ranking models, with different seeds, whose trees are combined.  [1]", low=1, high=50),
        default=1,
    )
    regression: TreeParams | None = None
    speeds: TreeParams | None = None
    mine: int = declared(Declared("Rounds of hard-example mining.", low=0, high=20), default=0)
    prior: float = declared(
        Declared("Weight of an analytic time model, relative to the regression.  [1 or 0]", low=0.0, high=10.0),
        default=0.0,
    )
    lambdarank: float = declared(
        Declared("Weight of a LambdaRank, relative to the regression.  [1 or 0]", low=0.0, high=10.0),
        default=0.0,
    )
    params: TreeParams = field(default_factory=TreeParams)

    @property
    def rank_target(self) -> str:
        """The target whose model orders kernels."""
        return TFLOPS if self.rank is RankObjective.TFLOPS else RANK

    @property
    def all_targets(self) -> tuple[str, ...]:
        """The targets that are trained, in order."""
        return self.targets + (() if self.rank is RankObjective.TFLOPS else (RANK,))


# Rows up to which trees of a size are the default; those of the last where there are more.
_SIZES = (
    (15_000, TreeParams(400, 0.05, 31, colsample_bytree=0.4, path_smooth=20.0)),
    (60_000, TreeParams(400, 0.05, 63, colsample_bytree=0.4, path_smooth=5.0)),
)
_LARGE = TreeParams(200, 0.1, 255, colsample_bytree=0.4)
_EARLY_OF_LARGE = 25  # rounds, at twice the rate
_PRIOR = 1.0
_LAMBDARANK, _FEWEST_OF_LAMBDARANK = 1.0, 2000  # with fewer rows it was not tried

# Trees of any depth on all rows, hardly regularized.
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
    """How models are trained unless it is said, by the number of usable rows (`benchmarks/objectives.py`)."""
    for most, params in _SIZES:
        if rows <= most:
            prior = _PRIOR if params is _SIZES[0][1] else 0.0
            beside = _LAMBDARANK if prior and rows >= _FEWEST_OF_LAMBDARANK else 0.0
            return TrainOptions(rank=RankObjective.EFFICIENCY, prior=prior, lambdarank=beside, params=params)
    return TrainOptions(rank=RankObjective.EFFICIENCY, early_stopping=_EARLY_OF_LARGE, params=_LARGE)
