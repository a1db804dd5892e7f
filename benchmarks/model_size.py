"""Efficiency of choices and ranking time by the size of a model, on ckh's measured data.

    python benchmarks/model_size.py [--jobs 2] [forward bwd_data bwd_weight gemm]

For each number of trees and leaves: the efficiency of choices on training problems held out by cross-validation, and on
the hold-out; the time to score all candidates of one problem in C; the size of the gzipped text. The smallest model
whose cross-validated mean is within 0.2 points of the best is marked: the hold-out is not used for the choice.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse
import gzip
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
from sklearn.model_selection import GroupKFold

from ckh.archs import HOST, load_arch
from ckh.assess.metrics import Times, choices
from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.ops.base import Encoding
from ckh.ranking.evaluator import Ranker
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import pack

if TYPE_CHECKING:
    from numpy.typing import NDArray

GEMM = "gemm"
DATA = Path(__file__).resolve().parents[1] / "data"
TREES = (50, 100, 200, 400)
LEAVES = (15, 31, 63, 127)
GEMM_TREES = (75, 150, 300)
GEMM_LEAVES = (63, 127, 255)
WITHIN = 0.002
_FOLDS = 5
_LEARNED = 20.0  # trees x learning rate, with a limit to the latter
_MOST_RATE = 0.3
_LEAST_LABEL = -2.5
_ROUNDS = 25

_SETS = {GEMM: (["host-gemm-train", "host-gemm-more"], "host-llm")}


@dataclass(frozen=True)
class Data:
    """A dataset with cached computations."""

    dataset: Dataset
    times: Times
    matrix: NDArray[np.float64]


def load(*names: str) -> Data:
    """Read datasets of data/ as one."""
    dataset = read_dataset(*(DATA / f"{name}.parquet" for name in names)).valid()
    op = dataset.op
    columns = {column: dataset.frame[column].to_numpy() for column in op.training.input_columns}
    return Data(dataset, times_of(dataset), op.training.engine.matrix(columns, dataset.hardware()))


def fit(data: Data, rows: NDArray[np.int64], trees: int, leaves: int, jobs: int) -> lightgbm.Booster:
    """Train the ranking model, as `ckh train` does by default."""
    efficiency = data.times.efficiency()[rows]
    engine = data.dataset.op.training.engine
    params: dict[str, Any] = {
        "num_leaves": leaves,
        "learning_rate": min(_LEARNED / trees, _MOST_RATE),
        "max_depth": 15,
        "min_data_in_leaf": 10,
        "bagging_fraction": 0.85,
        "bagging_freq": 1,
        "feature_fraction": 0.4,
        "lambda_l1": 0.05,
        "lambda_l2": 0.5,
        "verbose": -1,
        "seed": 42,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": jobs,
    }
    label = np.maximum(np.log(efficiency), _LEAST_LABEL)
    train = lightgbm.Dataset(
        data.matrix[rows],
        label,
        weight=efficiency,
        feature_name=list(engine.names),
        categorical_feature=list(engine.categorical),
    )
    return lightgbm.train(params, train, trees)


def efficiency_of(data: Data, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Efficiency of the choices by scores of all rows."""
    return data.times.efficiency()[choices(scores, data.times.problem, data.times.count)]


def milliseconds(model: lightgbm.Booster, data: Data) -> float:
    """Median time to score all candidates of one problem, features included."""
    op = data.dataset.op
    forest = pack(parse_forest(model.model_to_string()))
    first = [
        op.problems.of_row(row)
        for row in data.dataset.frame.drop_duplicates(list(op.problems.identity)).to_dict("records")
    ]
    candidates = op.kernels.candidates(first[0], load_arch(HOST), Path())
    columns = [op.problems.features([problem]) for problem in first[:_ROUNDS]]
    names, hardware = op.training.engine.names, load_arch(HOST).hardware.to_dict()
    kernels = op.kernels.features(candidates.pool, Encoding())
    ranker = Ranker([forest], op.training.engine, names, hardware, kernels, columns[0])
    taken = []
    for problem in [columns[0], *columns]:
        start = time.perf_counter()
        ranker.scores(problem)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:]) * 1e3


def report(name: str, train: Data, holdout: Data, jobs: int) -> None:
    """Print a table and mark the smallest model that is good enough."""
    rows: list[tuple[Any, ...]] = []
    print(f"\n{name}\n{'trees':>6s}{'leaves':>8s}{'CV mean':>10s}{'CV P10':>10s}{'mean':>10s}{'P10':>10s}", end="")
    print(f"{'ms':>8s}{'KB':>8s}", flush=True)
    for trees in GEMM_TREES if name == GEMM else TREES:
        for leaves in GEMM_LEAVES if name == GEMM else LEAVES:
            held_out = np.full(len(train.matrix), np.nan)
            for used, held in GroupKFold(_FOLDS).split(held_out, groups=train.times.problem):
                held_out[held] = fit(train, used, trees, leaves, jobs).predict(train.matrix[held])
            model = fit(train, np.arange(len(held_out)), trees, leaves, jobs)
            cv = efficiency_of(train, held_out)
            real = efficiency_of(holdout, np.asarray(model.predict(holdout.matrix)))
            size = len(gzip.compress(model.model_to_string().encode()))
            figures = (cv.mean(), np.percentile(cv, 10), real.mean(), np.percentile(real, 10))
            rows.append((trees, leaves, *map(float, figures), milliseconds(model, train), size))
            print(f"{trees:6d}{leaves:8d}" + "".join(f"{v:10.2%}" for v in figures), end="")
            print(f"{rows[-1][6]:8.3f}{size / 1000:8.0f}", flush=True)
    best = max(row[2] for row in rows)
    chosen = min((row for row in rows if row[2] >= best - WITHIN), key=lambda row: row[0] * row[1])
    print(f"best CV mean {best:.2%}; smallest within 0.2 points: {chosen[0]} trees x {chosen[1]} leaves")


def main() -> None:
    """Report on the given models, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", default=["forward", "bwd_data", "bwd_weight", GEMM])
    options = parser.parse_args()
    for name in options.names:
        learned, held_out = _SETS.get(name, ([f"host-train-{name}"], f"host-holdout-{name}"))
        report(name, load(*learned), load(held_out), options.jobs)


if __name__ == "__main__":
    main()
