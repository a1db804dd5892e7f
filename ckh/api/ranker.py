"""The ranking model as an estimator of scikit-learn: `ckh.KernelRanker`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ckh.api.inputs import options_of
from ckh.assess.metrics import choices
from ckh.assess.times import efficiency_of, judged
from ckh.data.dataset import Dataset, make_dataset
from ckh.errors import DataError, UsageError
from ckh.schema import Status
from ckh.training import RANK, TrainOptions, TreeParams

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

_GROUPS = "groups"  # column of the rows' groups in training
_FLOPS_PER_TFLOPS_MS = 1e9


class KernelRanker(BaseEstimator):  # type: ignore[misc]
    """Orders the kernels of a problem: the ranking model of `ckh.train`, with scikit-learn's interface.

    X is a data frame with one row per problem and kernel and the columns of a `ckh.Dataset`, y the times in ms, NaN
    for a kernel that failed. The parameters are those of `ckh.train`; None: the operation's default for the number of
    rows.

    Args:
        rank: objective.
        n_estimators: maximum number of trees.
        learning_rate: learning rate.
        num_leaves: leaves per tree.
        colsample_bytree: share of the features per tree.
        folds: folds of the validation that determines the number of trees; 0: all trees.
        prior: 0 leaves the analytic estimate out of the scores.
        seed: random seed.
        jobs: maximum number of threads; None: one per core.

    Attributes:
        op_type_: the operation.
        model_text_: the model, as LightGBM's text.
        importances_: number of splits by feature.
    """

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters from the signature
        self,
        *,
        rank: str | None = None,
        n_estimators: int | None = None,
        learning_rate: float | None = None,
        num_leaves: int | None = None,
        colsample_bytree: float | None = None,
        folds: int | None = None,
        prior: float | None = None,
        seed: int | None = None,
        jobs: int | None = None,
    ) -> None:
        self.rank = rank
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.colsample_bytree = colsample_bytree
        self.folds = folds
        self.prior = prior
        self.seed = seed
        self.jobs = jobs

    def fit(self, X: pd.DataFrame, y: ArrayLike, groups: ArrayLike | None = None) -> KernelRanker:  # noqa: N803
        """Train on measured times.

        Args:
            X: rows of one architecture, and one direction and element type.
            y: times in ms.
            groups: group of each row in the validation, which keeps groups whole; by default the operation's, as in
                `ckh.train`.

        Raises:
            CkhError: a parameter, column or value is unusable, or a problem is in several groups.
        """
        from ckh.api.learning import chosen_options
        from ckh.api.training_data import TrainRequest
        from ckh.learn.training.train import train

        given = {name: value for name, value in self.get_params().items() if value is not None}
        options, params = options_of(given, TrainOptions, TreeParams)
        request = TrainRequest(params, {"jobs": len(os.sched_getaffinity(0)), **options})
        dataset = _dataset(X, y, groups)
        chosen = chosen_options(dataset, request, None)
        # Speeds are not predicted, unless they rank.
        targets = () if chosen.rank_target == RANK else (chosen.rank_target,)
        trained = train(dataset, replace(chosen, targets=targets), lambda _steps, _text: None)
        best = trained.targets[trained.rank_by]
        self.op_type_ = dataset.op_type
        self.model_text_, self.importances_, self.estimate_ = best.text, best.importances, best.correction is not None
        self.feature_names_in_ = np.array(X.columns, dtype=object)
        self.n_features_in_ = len(X.columns)
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:  # noqa: N803
        """Scores, shape (rows,): of the kernels of a problem, the fastest is expected to have the highest.

        Raises:
            CkhError: a column is missing or of the wrong type, or the rows are of another operation.
        """
        import lightgbm

        from ckh.learn.analytic.corrected import row_scores
        from ckh.learn.training.feature_matrix import FeatureMatrix

        check_is_fitted(self)
        rows = _dataset(X)
        if rows.op_type != self.op_type_:
            raise DataError(f"the model is for {self.op_type_}, the rows are of {rows.op_type}", code="model-mismatch")
        columns = {name: rows.frame[name].to_numpy() for name in rows.op.training.input_columns}
        matrix = FeatureMatrix(rows.op.training.engine, columns, rows.hardware())
        scores = matrix.predict(lightgbm.Booster(model_str=self.model_text_))
        return scores + row_scores(rows) if self.estimate_ else scores

    def score(self, X: pd.DataFrame, y: ArrayLike) -> float:  # noqa: N803
        """Mean efficiency of the choices: the best time of a problem divided by that of the highest score.

        Raises:
            CkhError: the rows are unusable (`predict`), or there is no time.
        """
        known = judged(_dataset(X, y))
        chosen = choices(self.predict(known.frame), known.problem_ids, len(known.problems()))
        return float(efficiency_of(known)[chosen].mean())


def _dataset(rows: pd.DataFrame, latency_ms: ArrayLike | None = None, groups: ArrayLike | None = None) -> Dataset:
    """The rows with these times; without times, for predictions."""
    if not hasattr(rows, "columns"):
        raise UsageError(
            f"X must be a data frame with the columns of a dataset, not {type(rows).__name__}",
            "take the frame of a ckh.Dataset",
            code="bad-field",
        )
    times = np.full(len(rows), np.nan) if latency_ms is None else np.asarray(latency_ms, dtype=np.float64)
    known = rows.get("is_valid", np.ones(len(rows), dtype=bool))
    frame = rows.assign(
        latency_ms=np.where(times > 0, times, np.nan),
        is_valid=np.asarray(known, dtype=bool) & (times > 0),
        status=rows.get("status", str(Status.OK)),
    )
    dataset = make_dataset(frame.reset_index(drop=True), where="X")
    flops = np.array([float(problem.flops) for problem in dataset.problems()])[dataset.problem_ids]
    dataset.frame["tflops"] = flops / dataset.frame["latency_ms"] / _FLOPS_PER_TFLOPS_MS
    return dataset if groups is None else _grouped(dataset, np.asarray(groups))


def _grouped(dataset: Dataset, groups: NDArray[Any]) -> Dataset:
    """The dataset with other groups of cross-validation."""
    group = np.unique(groups, return_inverse=True)[1]
    if (group != group[dataset.first_rows][dataset.problem_ids]).any():
        raise UsageError("groups divide a problem: its kernels must be in one group", code="conflicting-options")
    return Dataset(dataset.frame.assign(**{_GROUPS: group}), op_type=dataset.op_type, split_by=(_GROUPS,))
