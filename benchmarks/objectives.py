"""Effect of objectives, weights, features, constraints and tree sizes on efficiency, on held-out layers.

    python benchmarks/objectives.py [forward bwd_data bwd_weight]

Each line trains on data/host-train-<direction>.parquet with one change and prints the efficiency of its choices twice:
on training problems held out by cross-validation, and on the real layers of data/host-holdout-<direction>.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
from sklearn.model_selection import GroupKFold

from ckh.assess.metrics import Times, choices
from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.ops.grouped_conv.features import CORE_NAMES, GROUPED_CONV, INPUT_COLUMNS
from ckh.problems import Direction

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDS = 5
ALL_NAMES = GROUPED_CONV.names
BASE: dict[str, Any] = {
    "num_iterations": 400,
    "learning_rate": 0.05,
    "num_leaves": 63,
    "max_depth": 15,
    "min_data_in_leaf": 10,
    "bagging_fraction": 0.85,
    "bagging_freq": 1,
    "feature_fraction": 0.85,
    "lambda_l1": 0.05,
    "lambda_l2": 0.5,
    "verbose": -1,
    "seed": 42,
    "deterministic": True,
    "force_col_wise": True,
}


@dataclass(frozen=True)
class Trial:
    """A variant: label (see `_label`), whether rows are weighted by efficiency, features, changed parameters."""

    name: str
    label: str
    weighted: bool = False
    features: tuple[str, ...] = ALL_NAMES
    params: dict[str, Any] = field(default_factory=dict)


TRIALS = (
    Trial("log1p(TFLOPS), 97 features, 255 leaves", "log1p", features=CORE_NAMES, params={"num_leaves": 255}),
    Trial("log1p(TFLOPS), 255 leaves", "log1p", params={"num_leaves": 255}),
    Trial("log1p(TFLOPS)", "log1p"),
    Trial("efficiency", "efficiency"),
    Trial("relative", "relative"),
    Trial("relative, 97 features", "relative", features=CORE_NAMES),
    Trial("relative, weighted", "relative", weighted=True),
    Trial("relative, weighted, 97 features", "relative", weighted=True, features=CORE_NAMES),
    Trial("relative, weighted, 255 leaves", "relative", weighted=True, params={"num_leaves": 255}),
    Trial("relative, weighted, 31 leaves", "relative", weighted=True, params={"num_leaves": 31}),
    Trial("relative, weighted, 40 % of features", "relative", weighted=True, params={"feature_fraction": 0.4}),
    Trial(
        "relative, weighted, 40 %, 800 trees",
        "relative",
        weighted=True,
        params={"feature_fraction": 0.4, "num_iterations": 800},
    ),
    Trial(
        "relative, weighted, monotone in fill",
        "relative",
        weighted=True,
        params={"monotone_constraints": [int(name.startswith("average_fill")) for name in ALL_NAMES]},
    ),
    Trial("LambdaRank", "grade", params={"objective": "lambdarank", "lambdarank_truncation_level": 20}),
    Trial(
        "LambdaRank, 40 % of features",
        "grade",
        params={"objective": "lambdarank", "lambdarank_truncation_level": 20, "feature_fraction": 0.4},
    ),
)


@dataclass(frozen=True)
class Data:
    """A dataset with cached computations."""

    dataset: Dataset
    times: Times
    matrix: NDArray[np.float64]


def load(name: str) -> Data:
    """Read a dataset of data/."""
    dataset = read_dataset(DATA / f"{name}.parquet").valid()
    columns = {column: dataset.frame[column].to_numpy() for column in INPUT_COLUMNS}
    return Data(dataset, times_of(dataset), GROUPED_CONV.matrix(columns, dataset.hardware()))


def _label(data: Data, kind: str) -> NDArray[np.float64]:
    efficiency = data.times.efficiency()
    match kind:
        case "log1p":
            return np.asarray(np.log1p(data.dataset.frame["tflops"].to_numpy()))
        case "relative":
            return np.maximum(np.log(efficiency), -2.5)
        case "grade":
            return np.floor(efficiency * 30)
        case _:
            return efficiency


def fit(trial: Trial, data: Data, rows: NDArray[np.int64]) -> lightgbm.Booster:
    """Train on some rows."""
    params = {**BASE, **trial.params}
    group = None
    if params.get("objective") == "lambdarank":
        params["label_gain"] = [float(np.expm1(grade / 5)) for grade in range(31)]
        rows = rows[np.argsort(data.times.problem[rows], kind="stable")]
        group = np.unique(data.times.problem[rows], return_counts=True)[1]
    if "monotone_constraints" in params:
        categorical = set(GROUPED_CONV.categorical)
        kept = [n not in categorical or c == 0 for n, c in zip(ALL_NAMES, params["monotone_constraints"], strict=True)]
        assert all(kept)
    columns = [ALL_NAMES.index(name) for name in trial.features]
    train = lightgbm.Dataset(
        data.matrix[rows][:, columns],
        _label(data, trial.label)[rows],
        weight=data.times.efficiency()[rows] if trial.weighted else None,
        group=group,
        feature_name=list(trial.features),
        categorical_feature=[name for name in GROUPED_CONV.categorical if name in trial.features],
    )
    return lightgbm.train(params, train)


def score(trial: Trial, model: lightgbm.Booster, data: Data, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores of some rows."""
    columns = [ALL_NAMES.index(name) for name in trial.features]
    return np.asarray(model.predict(data.matrix[rows][:, columns]))


def efficiency_of(data: Data, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Efficiency of the choices by scores of all rows."""
    return data.times.efficiency()[choices(scores, data.times.problem, data.times.count)]


def main() -> None:
    """Run all trials on the given directions, or all."""
    print(f"{'':44s}{'held-out folds':>20s}{'real layers':>20s}")
    print(f"{'':44s}" + f"{'mean':>10s}{'P10':>10s}" * 2)
    for direction in sys.argv[1:] or [str(item) for item in Direction]:
        train, holdout = load(f"host-train-{direction}"), load(f"host-holdout-{direction}")
        print(direction)
        for trial in TRIALS:
            oof = np.full(len(train.matrix), np.nan)
            for rows, held in GroupKFold(FOLDS).split(oof, groups=train.times.problem):
                oof[held] = score(trial, fit(trial, train, rows), train, held)
            model = fit(trial, train, np.arange(len(oof)))
            real = score(trial, model, holdout, np.arange(len(holdout.matrix)))
            figures = [
                figure(values)
                for values in (efficiency_of(train, oof), efficiency_of(holdout, real))
                for figure in (np.mean, lambda v: np.percentile(v, 10))
            ]
            print(f"  {trial.name:42s}" + "".join(f"{value:10.4f}" for value in figures), flush=True)


if __name__ == "__main__":
    main()
