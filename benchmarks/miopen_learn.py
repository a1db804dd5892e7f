"""Train the ranking of solvers, and evaluate it on unseen layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.metrics import Times, choices
from ckh.learn.models.model_text import join_trees, shorten, slim
from ckh.learn.training.targets import grades, lambdarank_parameters, relative
from ckh.ops.miopen_conv.features import INPUT_COLUMNS, MIOPEN_CONV
from ckh.ops.miopen_conv.recipe import RECIPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ckh.ops.miopen_conv.readers.solver_table import SolverTable
    from ckh.training import TrainOptions

_MS_FLOPS_PER_TFLOPS = 1e9
FOLDS = 5  # one of which is held out
_SEED_OF_FOLDS = 0


def matrix_of(table: SolverTable) -> NDArray[np.float64]:
    """Features of every row, shape (rows, features)."""
    columns = {name: table.frame[name].to_numpy() for name in INPUT_COLUMNS}
    return MIOPEN_CONV.matrix(columns, {"num_cus": np.array([table.device.num_cus])})


def times_of(table: SolverTable) -> Times:
    """Times for the evaluation; the databases state no spread."""
    latency = table.frame["latency_ms"].to_numpy(dtype=np.float64)
    return Times(table.problem_ids(), latency, np.full(len(latency), np.nan))


def held_out(table: SolverTable, fold: int = 0) -> NDArray[np.bool_]:
    """Mask of the rows of the fifth of all sizes that is held out, shape (rows,).

    By sizes only: a layer is held out in all its directions, dtypes and layouts.
    """
    sizes = table.size_ids()
    order = np.random.default_rng(_SEED_OF_FOLDS).permutation(int(sizes.max()) + 1)
    return np.asarray(order[sizes] % FOLDS == fold)


def efficiency_of(table: SolverTable, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Efficiency of the solvers with the highest scores, shape (problems,)."""
    times = times_of(table)
    return np.asarray(times.efficiency()[choices(scores, times.problem, times.count)])


def train_order(
    table: SolverTable,
    options: TrainOptions = RECIPE,
    base: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> str:
    """A LambdaRank model of solvers, as LightGBM's text. Deterministic for equal tables, options and versions.

    Args:
        table: training data.
        options: training options; one model, of `options.seed`.
        base: a model, possibly of another device, to be corrected by the new trees; the result includes its trees.
        advance: called with 1 after every round of boosting.
    """
    import lightgbm

    times = times_of(table)
    rows = np.argsort(times.problem, kind="stable")
    data = lightgbm.Dataset(
        matrix_of(table)[rows],
        grades(times.efficiency()[rows]),
        group=np.bincount(times.problem),
        init_score=None if base is None else predict(base, table, options.jobs)[rows],
        feature_name=list(MIOPEN_CONV.names),
        categorical_feature=list(MIOPEN_CONV.categorical),
    )
    parameters = _parameters(options) | lambdarank_parameters()
    rounds = parameters.pop("n_estimators")
    booster = lightgbm.train(parameters, data, rounds, callbacks=[lambda _: advance(1)])
    text = shorten(slim(str(booster.model_to_string())))
    return text if base is None else join_trees([base, text])


def train_regression(
    table: SolverTable, options: TrainOptions = RECIPE, advance: Callable[[int], None] = lambda _: None
) -> str:
    """The regression that is blended with ranking models, as LightGBM's text.

    Args:
        table: training data.
        options: for the seed and the regression's parameters.
        advance: called with 1 after every round of boosting.
    """
    efficiency = times_of(table).efficiency()
    return _regressed(
        table, relative(efficiency), efficiency, replace(options, params=options.regression or options.params), advance
    )


def train_speeds(table: SolverTable, options: TrainOptions = RECIPE) -> str:
    """The model of log(1 + TFLOPS), as LightGBM's text. Arguments are those of `train_regression`."""
    params = options.speeds or options.params
    return _regressed(table, np.log1p(tflops_of(table)), None, replace(options, params=params), lambda _: None)


def tflops_of(table: SolverTable) -> NDArray[np.float64]:
    """Speeds computed from the times, shape (rows,)."""
    flops = np.array([problem.flops for problem in table.problems()], dtype=np.float64)[table.problem_ids()]
    return np.asarray(flops / table.frame["latency_ms"].to_numpy(dtype=np.float64) / _MS_FLOPS_PER_TFLOPS)


def _regressed(
    table: SolverTable,
    label: NDArray[np.float64],
    weight: NDArray[np.float64] | None,
    options: TrainOptions,
    advance: Callable[[int], None],
) -> str:
    import lightgbm

    data = lightgbm.Dataset(
        matrix_of(table),
        label,
        weight=weight,
        feature_name=list(MIOPEN_CONV.names),
        categorical_feature=list(MIOPEN_CONV.categorical),
    )
    parameters = _parameters(options)
    rounds = parameters.pop("n_estimators")
    parameters["objective"] = "regression"
    booster = lightgbm.train(parameters, data, rounds, callbacks=[lambda _: advance(1)])
    return shorten(slim(str(booster.model_to_string())))


def predict(text: str, table: SolverTable, jobs: int = 1) -> NDArray[np.float64]:
    """Scores by LightGBM itself, higher is better, shape (rows,)."""
    import lightgbm

    return np.asarray(lightgbm.Booster(model_str=text).predict(matrix_of(table), raw_score=True, num_threads=jobs))


def _parameters(options: TrainOptions) -> dict[str, Any]:
    return {
        **options.params.to_dict(),
        "seed": options.seed,
        "num_threads": options.jobs,
        "deterministic": True,
        "force_col_wise": True,
        "verbose": -1,
    }
