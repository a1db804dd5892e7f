"""Training in steps with values between them: prepare; validate and fit each target; calibrate; and `save` the result.

Validation is by problem, and determines the number of trees of the final fit. The same data, options and versions give
the same bytes, for any number of threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from ckh.learn.judging.calibrate import calibrate
from ckh.learn.models.model_text import join_trees, scale_leaves, shorten
from ckh.learn.training.boosting import Boosting
from ckh.learn.training.prepared import check_options, prepare
from ckh.learn.training.targets import make_fit
from ckh.learn.training.trained import Trained, TrainedTarget
from ckh.learn.training.validation import Validation
from ckh.ranking.lightgbm_text import parse_forest
from ckh.training import RANK, TARGET_COLUMNS, TFLOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.models.calibration import Calibration
    from ckh.learn.training.validation import Validated
    from ckh.learn.training.warm_start import Start
    from ckh.training import TrainOptions

_THREADS = re.compile(r"^\[num_threads: .*\]$", re.MULTILINE)  # models with equal trees must not differ by them


def rounds(options: TrainOptions) -> int:
    """Maximum number of boosting rounds, for a progress bar."""
    return len(options.all_targets) * options.params.n_estimators * (options.folds + 1)


def train(
    dataset: Dataset, options: TrainOptions, advance: Callable[[int, str], None], start: Start | None = None
) -> Trained:
    """Train every target on the valid rows of a dataset of one architecture, and one direction and dtype.

    With a `start`, trees are added to that model.
    """
    check_options(options, start)
    prepared = prepare(dataset, options, start)
    rows, engine, boosting = prepared.dataset, prepared.dataset.op.training.engine, Boosting(prepared, options, advance)
    validated, targets = {}, {}
    for target in options.all_targets:
        validated[target] = Validation(boosting).run(make_fit(target, rows, options.rank))
        targets[target] = _fitted(boosting, validated[target])
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
    )


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Valid rows, and their ranking scores by the folds' models, which have not seen the row's problem."""

    dataset: Dataset
    score: NDArray[np.float64]


def held_out(dataset: Dataset, options: TrainOptions) -> HeldOut | None:
    """Score each valid row as cross-validation in `train` does; None without folds."""
    prepared = prepare(dataset, options)
    if not prepared.splits(options.folds):
        return None
    fit = make_fit(options.rank_target, prepared.dataset, options.rank)
    validation = Validation(Boosting(prepared, options, lambda _steps, _text: None))
    return HeldOut(prepared.dataset, validation.run(fit).predicted)


def _calibration(dataset: Dataset, validated: Mapping[str, Validated]) -> Calibration | None:
    """Calibration of speeds by the ranking, with prediction intervals; None without folds or speeds."""
    held_out = {target: validated.predicted for target, validated in validated.items() if validated.folds}
    if TFLOPS not in held_out:
        return None
    tflops = dataset.frame[TARGET_COLUMNS[TFLOPS]].to_numpy(dtype=np.float64)
    speed = np.expm1(held_out[TFLOPS])
    return calibrate(held_out.get(RANK), speed, tflops, dataset.problem_ids, dataset.op.training.timed)


def _fitted(boosting: Boosting, validated: Validated) -> TrainedTarget:
    """Fit a target to all rows, with the number of trees determined by its folds."""
    prepared, options, fit, folds = boosting.prepared, boosting.options, validated.fit, validated.folds
    rows, validation = np.arange(len(fit.label)), Validation(boosting)
    before = 0 if prepared.start is None else prepared.start.trees[fit.target]
    most = before + options.params.n_estimators
    trees = round(median(fold.best_iteration for fold in folds)) if folds else most
    estimate = boosting.estimate(rows) if fit.target == RANK else None
    if is_alone := estimate is not None and boosting.has_few_rows:
        trees = 1  # without weight
    final = boosting.fit(fit, rows, None, f"{fit.target}, final", trees - before)
    chosen = validation.efficiency(validated)
    text = _THREADS.sub("[num_threads: 0]", final.model_to_string(num_iteration=trees))
    prior = None if is_alone else boosting.prior(fit, rows)
    if is_alone:
        text = scale_leaves(text, 0.0)
    elif prior is not None:
        text, trees = _mean(text, prior.model.model_to_string(), prior.weight), trees + prior.model.num_trees()
        if (lambdarank := boosting.lambdarank(rows)) is not None:
            scale = boosting.lambdarank_scale(rows, final, prior, lambdarank)
            text = _mean(text, lambdarank.model_to_string(), options.lambdarank, scale)
            trees += lambdarank.num_trees()
    names = prepared.dataset.op.training.engine.names
    counts = final.feature_importance()
    if prepared.start is not None:  # LightGBM counts no splits of joined trees, whose gains were removed
        counts = np.bincount(parse_forest(text).feature, minlength=len(names))
    return TrainedTarget(
        text=text,
        trees=trees,
        folds=folds,
        importances=dict(zip(names, map(int, counts), strict=True)),
        oof_efficiency=None if chosen is None else tuple(chosen.tolist()),
        comparison=validation.against_start(fit.target, chosen),
        estimate=estimate,
    )


def _mean(text: str, other: str, weight: float, scale: float = 1.0) -> str:
    """Mean of two models, of which the second has a weight relative to 1; its scores are scaled before."""
    both = scale_leaves(text, 1.0 / (1.0 + weight)), scale_leaves(other, scale * weight / (1.0 + weight))
    return shorten(join_trees(both))
