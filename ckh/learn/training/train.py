"""Training in steps with values between them: prepare; validate and fit each target; calibrate; and `save` the result.

Validation is by problem, and determines the number of trees of the final fit. The same data, options and versions give
the same bytes, for any number of threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.learn.judging.calibrate import calibrate
from ckh.learn.models.model_text import join_trees, scale_leaves, shorten
from ckh.learn.training.boosting import Boosting, Prior
from ckh.learn.training.prepared import check_options, prepare
from ckh.learn.training.targets import Fit, blended, make_fit
from ckh.learn.training.trained import Trained, TrainedTarget
from ckh.learn.training.validation import Validated, Validation
from ckh.learn.training.warm_start import Start, split_counts
from ckh.training import RANK, TARGET_COLUMNS, TFLOPS, RankObjective, TrainOptions, TreeParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.models.calibration import Calibration
    from ckh.learn.training.far_fit import FarFit

# The text contains threads and workers' addresses, which must not make models with equal trees differ.
_UNSAID = {"num_threads": "0", "num_machines": "1", "local_listen_port": "12400", "machines": ""}
_PLACES = re.compile(rf"^\[({'|'.join(_UNSAID)}): .*\]$", re.MULTILINE)


def rounds(options: TrainOptions) -> int:
    """Maximum number of boosting rounds, for a progress bar."""
    further = options.ensemble - 1 if options.rank_target == RANK else 0
    further += options.folds * options.mine
    blended = _regression_params(options).n_estimators if options.rank is RankObjective.BLEND else 0
    trees = sum(_params_of(target, options).n_estimators for target in options.all_targets)
    return trees * (options.folds + 1) + further * options.params.n_estimators + blended


def train(
    dataset: Dataset,
    options: TrainOptions,
    advance: Callable[[int, str], None],
    start: Start | None = None,
    far: FarFit | None = None,
) -> Trained:
    """Train every target on the valid rows of a dataset of one architecture, and one direction and dtype.

    With a `start`, trees are added to that model. With `far`, the final models are trained on the cluster on all rows
    of its workers; the dataset is then used for validation, and may be a subset of these rows.

    Raises:
        DataError: the data cannot be trained on (`prepare`).
        UsageError: the options are incompatible (`check_options`), or with the data or start.
    """
    check_options(options, start)
    prepared = prepare(dataset, options, start)
    rows, engine = prepared.dataset, prepared.dataset.op.training.engine
    trainer = _Trainer(Boosting(prepared, options, advance), far)
    validated, targets = {}, {}
    for target in options.all_targets:
        validated[target] = trainer.validated(make_fit(target, rows, options.rank))
        targets[target] = trainer.fitted(validated[target])
    return Trained(
        dataset=prepared.known,
        all_rows=len(dataset.frame),
        options=options,
        feature_names=engine.names,
        categorical=engine.categorical,
        targets=targets,
        params={**options.params.to_dict(), "random_state": options.seed, "early_stopping": options.early_stopping},
        start=prepared.start,
        calibration=_calibration(rows, validated),
        spread_over=0 if far is None else far.workers,
    )


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Scores of rows by the folds' models, which have not seen the row's problem.

    Attributes:
        dataset: the valid rows.
        score: ranking score of each row, shape (rows,).
    """

    dataset: Dataset
    score: NDArray[np.float64]


def held_out(dataset: Dataset, options: TrainOptions) -> HeldOut | None:
    """Score each valid row as cross-validation in `train` does; None without folds.

    Raises:
        DataError: the data cannot be trained on (`prepare`).
    """
    prepared = prepare(dataset, options)
    if not prepared.splits(options.folds):
        return None
    trainer = _Trainer(Boosting(prepared, options, lambda _steps, _text: None), None)
    fit = make_fit(options.rank_target, prepared.dataset, options.rank)
    return HeldOut(prepared.dataset, trainer.validated(fit).predicted)


def _calibration(dataset: Dataset, validated: Mapping[str, Validated]) -> Calibration | None:
    """Calibration of speeds by the ranking, with prediction intervals; None without folds or speeds."""
    held_out = {target: validated.predicted for target, validated in validated.items() if validated.folds}
    if TFLOPS not in held_out:
        return None
    tflops = dataset.frame[TARGET_COLUMNS[TFLOPS]].to_numpy(dtype=np.float64)
    speed = np.expm1(held_out[TFLOPS])
    return calibrate(held_out.get(RANK), speed, tflops, dataset.problem_ids, dataset.op.training.timed)


class _Trainer:
    """Validates and fits the models of a target, including ensembles, blends and priors."""

    def __init__(self, boosting: Boosting, far: FarFit | None) -> None:
        self._boosting, self._far = boosting, far
        self._prepared = boosting.prepared
        self._options = boosting.options

    def validated(self, fit: Fit) -> Validated:
        """Cross-validate a target."""
        return Validation(self._boosting_of(fit.target)).run(fit)

    def fitted(self, validated: Validated) -> TrainedTarget:
        """Fit a target to all rows, with the number of trees determined by its folds."""
        fit, folds = validated.fit, validated.folds
        boosting, rows = self._boosting_of(fit.target), np.arange(len(fit.label))
        validation = Validation(boosting)
        before = 0 if self._prepared.start is None else self._prepared.start.trees[fit.target]
        most = before + boosting.options.params.n_estimators
        trees = round(median(fold.best_iteration for fold in folds)) if folds else most
        estimate = boosting.estimate(rows) if fit.target == RANK else None
        if is_alone := estimate is not None and boosting.has_few_rows:
            trees = 1  # without weight
        final = self._final(boosting, fit, rows, trees - before)
        chosen = validation.efficiency(validated)
        text = _PLACES.sub(lambda item: f"[{item[1]}: {_UNSAID[item[1]]}]", final.model_to_string(num_iteration=trees))
        if fit.target == RANK and (self._options.ensemble > 1 or self._options.rank is RankObjective.BLEND):
            text = self._joined(fit, [text, *self._further(fit, trees)])
        prior = None if is_alone else self._boosting.prior(fit, rows)
        if is_alone:
            text = scale_leaves(text, 0.0)
        elif prior is not None:
            text, trees = self._with_prior(text, prior), trees + prior.model.num_trees()
            if (lambdarank := self._boosting.lambdarank(rows)) is not None:
                scale = self._boosting.lambdarank_scale(rows, final, prior, lambdarank)
                text = self._with_lambdarank(text, lambdarank.model_to_string(), scale)
                trees += lambdarank.num_trees()
        names = self._prepared.dataset.op.training.engine.names
        # For an ensemble's joined trees LightGBM counts no splits: their gains were removed.
        counts = final.feature_importance() if self._prepared.start is None else split_counts(text, names)
        return TrainedTarget(
            text=text,
            trees=trees,
            folds=folds,
            importances={name: int(count) for name, count in zip(names, counts, strict=True)},
            oof_efficiency=None if chosen is None else tuple(chosen.tolist()),
            comparison=validation.against_start(fit.target, chosen),
            mined=validated.mined,
            estimate=estimate,
        )

    def _boosting_of(self, target: str) -> Boosting:
        """Return the fitter with a target's parameters."""
        params = _params_of(target, self._options)
        if params == self._options.params:
            return self._boosting
        return Boosting(self._prepared, replace(self._options, params=params), self._boosting.advance)

    def _final(self, boosting: Boosting, fit: Fit, rows: NDArray[np.int64], trees: int) -> Any:
        """Fit the final `lightgbm.Booster` to all rows, here or on the workers."""
        if self._far is None:
            return boosting.fit(fit, rows, None, f"{fit.target}, final", trees)
        op = self._prepared.dataset.op
        booster = self._far.fit(fit, op, boosting.parameters(fit), trees)
        boosting.advance(boosting.options.params.n_estimators, f"{fit.target}, on the cluster")
        return booster

    def _with_prior(self, text: str, prior: Prior) -> str:
        """Weighted mean of a model and a prior."""
        weight, other = 1.0 + prior.weight, prior.model.model_to_string()
        return shorten(join_trees([scale_leaves(text, 1.0 / weight), scale_leaves(other, prior.weight / weight)]))

    def _with_lambdarank(self, text: str, lambdarank: str, scale: float) -> str:
        """Weighted mean of a model and a LambdaRank; `scale` as in `Boosting.lambdarank_scale`."""
        weight = self._options.lambdarank
        parts = [scale_leaves(text, 1.0 / (1.0 + weight)), scale_leaves(lambdarank, scale * weight / (1.0 + weight))]
        return shorten(join_trees(parts))

    def _further(self, fit: Fit, trees: int) -> Iterator[str]:
        """Further models of an ensemble."""
        rows = np.arange(len(fit.label))
        for number in range(1, self._options.ensemble):
            text = f"{fit.target}, model {number + 1}"
            yield self._boosting.fit(fit, rows, None, text, trees, number).model_to_string(num_iteration=trees)

    def _joined(self, fit: Fit, texts: list[str]) -> str:
        """Join the models of an ensemble or a blend.

        Regressions are averaged; LambdaRanks, which have no scale, are summed.
        """
        if self._options.rank is RankObjective.BLEND:
            return shorten(blended(texts, self._regression()))
        joined = join_trees(texts)
        return shorten(joined if fit.is_grouped else scale_leaves(joined, 1 / len(texts)))

    def _regression(self) -> str:
        """Regression of a blend."""
        options = replace(self._options, params=_regression_params(self._options))
        boosting = Boosting(self._prepared, options, self._boosting.advance)
        fit = make_fit(RANK, self._prepared.dataset, RankObjective.RELATIVE)
        return str(boosting.fit(fit, np.arange(len(fit.label)), None, f"{RANK}, regression").model_to_string())


def _params_of(target: str, options: TrainOptions) -> TreeParams:
    """Parameters of a target's model."""
    return options.speeds or options.params if target == TFLOPS else options.params


def _regression_params(options: TrainOptions) -> TreeParams:
    """Parameters of a blend's regression."""
    return options.regression or options.params
