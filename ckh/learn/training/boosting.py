"""Fitting models to rows with LightGBM: labels, parameters, rows, and the trees of a warm start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from ckh.assess.times import efficiency_of
from ckh.errors import DataError
from ckh.learn.analytic.corrected import (
    OF_EFFICIENCY,
    WEIGHTS,
    WEIGHTS_OF_SESSIONS,
    correction,
    estimated_logs,
    weight_of,
)
from ckh.training import LOG_TARGETS, RANK, TARGET_COLUMNS, RankObjective, TreeParams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.training.prepared import FoldSplit, Prepared
    from ckh.training import TrainOptions

# Kernels slower than exp(-2.5) = 8 % of the best are all treated as equally bad.
_RELATIVE_FLOOR = -2.5
# LambdaRank needs few integer grades: efficiency in thirtieths, each with a gain exp(1/5) times the one below.
_GRADES, _GRADE_SCALE, _TRUNCATION = 30, 5.0, 20
_EVAL_AT = (1, 2, 3, 4, 5)
# Above this number, rows are binned once for all folds and targets, as in lightgbm.cv: with this many rows the bins
# are the same with and without a fold. Row-wise histograms are then faster; a tree of 600,000 rows takes two thirds of
# the time.
_MANY_ROWS = 60_000
# With fewer, threads wait longer than they work: next to two busy processes on two cores, 2,520 rows took two threads
# five times as long as one, and six times the CPU time.
_ROWS_A_THREAD = 4_000


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The training arrays of a model, all of shape (rows,)."""

    target: str
    label: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    parameters: dict[str, Any]
    is_grouped: bool
    corrects: bool = False  # the errors of the estimate


def make_fit(target: str, dataset: Dataset, rank: RankObjective) -> Fit:
    """Build the labels of a target for the valid rows of a dataset; a ranking regression weighs them by efficiency."""
    if target != RANK:
        measured = dataset.frame[TARGET_COLUMNS[target]].to_numpy(dtype=np.float64)
        if missing := int(np.count_nonzero(~np.isfinite(measured))):
            rows = f"{missing} of {len(measured)} usable rows"
            hint = "omit the target in --targets, or make the dataset again with ckh convert"
            raise DataError(f"column {TARGET_COLUMNS[target]} has missing values in {rows}", hint, code="bad-column")
        label = np.log1p(measured) if target in LOG_TARGETS else measured
        return Fit(target, label, None, {"objective": "regression"}, is_grouped=False)
    efficiency = efficiency_of(dataset)
    if rank is RankObjective.LAMBDARANK:
        gains = [float(np.expm1(grade / _GRADE_SCALE)) for grade in range(_GRADES + 1)]
        parameters = {"objective": "lambdarank", "lambdarank_truncation_level": _TRUNCATION, "label_gain": gains}
        return Fit(target, np.asarray(np.floor(efficiency * _GRADES)), None, parameters, is_grouped=True)
    is_plain = rank is RankObjective.EFFICIENCY
    label = efficiency if is_plain else np.maximum(np.log(efficiency), _RELATIVE_FLOOR)
    # Only the order near the top matters.
    return Fit(target, label, efficiency, {"objective": "regression"}, is_grouped=False)


class Boosting:
    """Fits models to rows of prepared data; `advance` gets the number of finished rounds, and what is fitted."""

    def __init__(self, prepared: Prepared, options: TrainOptions, advance: Callable[[int, str], None]) -> None:
        self.prepared = prepared
        self.options = options
        self.advance = advance
        self._done, self._end, self._text = 0, 0, ""

    @cached_property
    def estimated(self) -> NDArray[np.float64] | None:
        """Logarithms of the rows' estimated times, where ranking scores are these corrected by trees; else None."""
        start = self.prepared.start
        is_wanted = self.options.prior if start is None else start.spec.estimate
        return estimated_logs(self.prepared.dataset) if is_wanted else None

    def fits_of(self, target: str) -> tuple[Fit, ...]:
        """Labels of a target (`make_fit`); with an estimate, those of its correction first, except for a start's."""
        made, start = make_fit(target, self.prepared.dataset, self.options.rank), self.prepared.start
        if target != RANK or self.estimated is None:
            return (made,)
        label, weight = correction(self.prepared.dataset, self.estimated)
        corrects = Fit(target, label, weight, {"objective": "regression"}, is_grouped=False, corrects=True)
        if start is None:
            return corrects, made
        is_whole = start.manifest.get("correction") == OF_EFFICIENCY
        return (replace(made, label=made.label * OF_EFFICIENCY) if is_whole else corrects,)

    def corrected(
        self, fit: Fit, predicted: NDArray[np.float64], splits: Sequence[FoldSplit]
    ) -> tuple[NDArray[np.float64], float]:
        """Scores by held-out trees, for corrections in each fold with the weight by the others, and the weight of all.

        A continued model's trees have their weight already.
        """
        assert self.estimated is not None
        if self.prepared.start is not None or not fit.corrects:
            weight = OF_EFFICIENCY if self.prepared.start is None else 1.0
            return weight * predicted - self.estimated, weight
        scores, every = -self.estimated, np.arange(len(predicted))
        for split in splits:
            scores[split.score] += self._weight(predicted, np.setdiff1d(every, split.score)) * predicted[split.score]
        return scores, self._weight(predicted, every) if splits else 0.0

    def _weight(self, predicted: NDArray[np.float64], rows: NDArray[np.int64]) -> float:
        assert self.estimated is not None
        dataset, efficiency = self.prepared.dataset, self.prepared.efficiency
        weights = WEIGHTS_OF_SESSIONS if len(dataset.metadata["sources"]) > 1 else WEIGHTS
        return weight_of(self.estimated[rows], predicted[rows], efficiency[rows], dataset.problem_ids[rows], weights)

    def fit(
        self,
        fit: Fit,
        rows: NDArray[np.int64],
        stop: NDArray[np.int64] | None,
        text: str,
        trees: int | None = None,
    ) -> Any:
        """Fit a `lightgbm.Booster` to some rows, stopped early by others if there are any (`stop`)."""
        options = self.options
        self.count_to(self._end)
        self._end += options.params.n_estimators
        self._text = text
        parameters = self._parameters(fit, options.params)
        callbacks: list[Any] = [self._count]
        if stop is not None:
            callbacks.append(lightgbm.early_stopping(options.early_stopping, first_metric_only=True, verbose=False))
        start = self.prepared.start
        model = lightgbm.train(
            parameters,
            self._rows(fit, rows, parameters),
            options.params.n_estimators if trees is None else trees,
            valid_sets=None if stop is None else [self._rows(fit, stop, parameters)],
            init_model=None if start is None else start.model.booster(fit.target),
            callbacks=callbacks,
        )
        model.free_dataset()
        return model

    def _count(self, _: Any) -> None:
        self.count_to(self._done + 1)

    def count_to(self, rounds: int) -> None:
        """Count rounds that are done or not needed, up to a number of them."""
        self.advance(rounds - self._done, self._text)
        self._done = rounds

    def _parameters(self, fit: Fit, trees: TreeParams) -> dict[str, Any]:
        """LightGBM's parameters, without the number of trees."""
        parameters = {
            **trees.to_dict(),
            **fit.parameters,
            # Also set by LightGBM's scikit-learn interface, and part of the model text.
            "metric": fit.parameters["objective"],
            **({"eval_at": _EVAL_AT} if fit.is_grouped else {}),
            "random_state": self.options.seed,
            "n_jobs": min(self.options.jobs, max(1, len(self.prepared.matrix) // _ROWS_A_THREAD)),
            "deterministic": True,
            "force_row_wise" if self.has_many else "force_col_wise": True,
            "verbose": -1,
        }
        del parameters["n_estimators"]
        return parameters

    def _rows(self, fit: Fit, rows: NDArray[np.int64], parameters: dict[str, Any]) -> Any:
        """Convert rows to LightGBM's dataset, which stores binned features only."""
        matrix, problem = self.prepared.matrix, self.prepared.dataset.problem_ids
        rows = rows[np.argsort(problem[rows], kind="stable")] if fit.is_grouped or self.has_many else rows
        weight = None if fit.weight is None else fit.weight[rows]
        group = np.unique(problem[rows], return_counts=True)[1] if fit.is_grouped else None
        arguments: dict[str, Any] = {"label": fit.label[rows], "weight": weight, "group": group, "params": parameters}
        if self.prepared.start is not None:
            # A model that is continued can predict for arrays only.
            return lightgbm.Dataset(matrix.take(rows), **arguments, **self._features)
        if not self.has_many:
            return matrix.lightgbm_data(rows, **arguments, **self._features)
        order, place = self._order
        binned = matrix.binned(order, parameters, **self._features)
        subset = binned.subset(place[rows]).construct()
        subset.params = parameters
        return subset.set_label(fit.label[rows]).set_weight(weight).set_group(group)

    @property
    def has_many(self) -> bool:
        """True for large data, which are handled differently."""
        return len(self.prepared.matrix) > _MANY_ROWS

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row order by problem, and the position of each row in it."""
        order = np.argsort(self.prepared.dataset.problem_ids, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return order, place

    @property
    def _features(self) -> dict[str, Any]:
        """LightGBM's arguments with the feature names."""
        engine = self.prepared.dataset.op.training.engine
        return {"feature_name": list(engine.names), "categorical_feature": list(engine.categorical)}
