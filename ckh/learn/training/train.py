"""Training in steps with values between them: prepare; validate and fit each target; calibrate.

Validation is by problem: each is scored by the model of a fold that has not seen it. It determines the number of trees
of the final fit. The same data, options and versions give the same bytes, for any number of threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.kernels.pools import TIMED_NAME
from ckh.learn.analytic.corrected import is_gain
from ckh.learn.judging.calibrate import calibrate, covering_sets, in_order
from ckh.learn.models.manifest import problem_id
from ckh.learn.models.model_text import scale_leaves, shorten
from ckh.learn.training.boosting import Boosting
from ckh.learn.training.prepared import FEWEST_ROWS, check_options, prepare
from ckh.learn.training.trained import FoldMetrics, ModelComparison, Trained, TrainedTarget, compare
from ckh.ranking.lightgbm_text import parse_forest
from ckh.text.progress import progress
from ckh.training import RANK, TARGET_COLUMNS, TFLOPS, Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.training.boosting import Fit
    from ckh.learn.training.prepared import FoldSplit
    from ckh.learn.training.warm_start import Start
    from ckh.training import TrainOptions

_FOLDS = 5  # that choose the weight of a correction, if no others are requested
# Of .5, 1, 2 and 4; AMD's winner is in five of other layers for .785, .823, .831 and .823, and .715 without a lead.
_LEAD_OF_WINNERS = 2.0
# Measured kernels of a problem, such problems, and standard errors by which other trees must choose better: among few
# measured kernels they choose better where the estimate is right, too, and then worse among all.
_FEWEST_KERNELS, _FEWEST_PROBLEMS, _DEVIATIONS = 10, 50, 2.0
_LEAD_FOLDS = 4  # whose kernels without measurements are of other tiles, and of other pipelines in every second
_FEWEST_LEADS, _LEAD_LEVEL = 5, 0.95
_TILE = ["tile_m", "tile_n", "tile_k"]
_THREADS = re.compile(r"^\[num_threads: .*\]$", re.MULTILINE)  # models with equal trees must not differ by them


def rounds(options: TrainOptions) -> int:
    """Maximum number of boosting rounds, for a progress bar."""
    again = min(options.folds, _LEAD_FOLDS) + bool(options.prior) * options.folds  # for leads, and beside the estimate
    return (again + (options.folds + 1) * len(options.all_targets)) * options.params.n_estimators


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
        validated[target] = _validated(boosting, target)
        targets[target] = _fitted(boosting, validated[target])
    predicted = {target: made.predicted for target, made in validated.items() if made.folds}
    calibration = None  # without folds or speeds
    if TFLOPS in predicted:
        tflops = rows.frame[TARGET_COLUMNS[TFLOPS]].to_numpy(dtype=np.float64)
        speed = np.expm1(predicted[TFLOPS])
        calibration = calibrate(predicted.get(RANK), speed, tflops, rows.problem_ids, rows.op.training.timed)
    if calibration is not None and start is None:  # whose trees may have seen the problems of all folds
        calibration = replace(calibration, sets=covering_sets(dataset, rows, predicted[options.rank_target]))
    lead = _lead(boosting, validated[options.rank_target])
    boosting.count_to(rounds(options))
    return Trained(
        dataset=prepared.known,
        all_rows=len(dataset.frame),
        options=options,
        feature_names=engine.names,
        categorical=engine.categorical,
        targets=targets,
        params={**options.params.to_dict(), "random_state": options.seed, "early_stopping": options.early_stopping},
        start=prepared.start,
        calibration=calibration,
        lead=lead,
    )


def _lead(boosting: Boosting, validated: Validated) -> float | None:
    """Lead in score that a kernel without measurements needs over those with some; None if the folds show none.

    Folds leave out problems, and kernels of whole tiles or pipelines. Where such a kernel would be chosen although it
    is not faster, its lead is the model's error. The result is the 95 % conformal quantile of the errors among these
    choices, or the largest error of fewer than 19 choices. Of winners alone it is constant: others may never have won.
    """
    prepared, options, fit = boosting.prepared, boosting.options, validated.fit
    dataset = prepared.dataset
    if options.labels is Labels.WINNERS:
        return _LEAD_OF_WINNERS
    if not _leaves_kernels_out(dataset, options) or prepared.start is not None:
        return None
    errors: list[float] = []
    for number, split in enumerate(prepared.splits(options.folds)[:_LEAD_FOLDS]):
        is_out = _left_out(dataset, number)
        rows, stop = (part[~is_out[part]] for part in (split.train, split.stop))
        if min(len(rows), len(stop)) < FEWEST_ROWS:
            continue
        model = boosting.fit(fit, rows, stop, f"kernels left out, fold {number + 1}")
        score = prepared.matrix.predict(model, split.score)
        if validated.correction is not None and boosting.estimated is not None:
            score = validated.correction * score - boosting.estimated[split.score]
        out, efficiency = is_out[split.score], prepared.efficiency[split.score]
        for of_problem in in_order(score, dataset.problem_ids[split.score]):
            others, known = of_problem[out[of_problem]], of_problem[~out[of_problem]]
            if len(others) and len(known) and score[others[0]] > score[known[0]]:
                is_wrong = efficiency[others[0]] <= efficiency[known[0]]
                errors.append(float(score[others[0]] - score[known[0]]) if is_wrong else 0.0)
    return conformal(errors, _LEAD_LEVEL) if len(errors) >= _FEWEST_LEADS else None


def conformal(errors: Sequence[float], level: float) -> float:
    """Conformal quantile: the error that the next of the same kind exceeds with 1 - level at most; else the largest."""
    return sorted(errors)[min(ceil((len(errors) + 1) * level), len(errors)) - 1]


def _leaves_kernels_out(dataset: Dataset, options: TrainOptions) -> bool:
    """True if a model of a dataset may rank kernels first that were not measured: those that ckh can measure."""
    op = dataset.op
    if options.labels is Labels.WINNERS or op.apart or TIMED_NAME not in op.training.model_files:
        return False
    pool = op.kernels.candidates(dataset.problems()[0], load_arch(dataset.arch), Path()).pool
    return len(pool) > dataset.frame["kernel"].nunique()


def _left_out(dataset: Dataset, fold: int) -> NDArray[np.bool_]:
    """Mask of the rows of a third of the tiles, or of the pipelines, shape (rows,)."""
    frame = dataset.frame
    tiles = frame[_TILE].astype(str).agg("x".join, axis=1) if {*_TILE} <= {*frame} else frame["kernel"]
    columns = [tiles, frame[dataset.op.kernels.slice_column], frame["kernel"]]
    kinds = next(column for column in [columns[fold % 2], *columns] if column.nunique() > 1 or column is columns[-1])
    names = np.array(sorted(kinds.unique()))
    chosen = np.random.default_rng(fold).permutation(names)[: max(1, len(names) // 3)]
    return np.asarray(kinds.isin(chosen))


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
    fits = options.folds * (1 + bool(options.prior))
    with progress("cross-validating trees", fits * options.params.n_estimators) as advance:
        boosting = Boosting(prepared, options, advance)
        return HeldOut(prepared.dataset, _validated(boosting, options.rank_target).predicted)


@dataclass(frozen=True, slots=True, eq=False)
class Validated:
    """Result of a cross-validation: out-of-fold prediction of each row, NaN without folds, and metrics of the folds.

    `correction` is the weight of trees that correct the estimate, None for others.
    """

    fit: Fit
    predicted: NDArray[np.float64]
    folds: tuple[FoldMetrics, ...]
    trees: tuple[int, ...]
    correction: float | None


def _validated(boosting: Boosting, target: str) -> Validated:
    """Cross-validate the fits of a target: the first one, unless the choices of another are better.

    They are compared on problems of many kernels: choices between a few do not tell who chooses well among all.
    Of large data, a target that neither ranks nor predicts speeds has one fold: it determines the number of trees and
    the error only.
    """
    options, is_corrected = boosting.options, target == RANK and boosting.estimated is not None
    splits = boosting.prepared.splits(options.folds or (_FOLDS if is_corrected else 0))
    best, *others = (
        _validated_fit(boosting, fit, splits, is_corrected=is_corrected) for fit in boosting.fits_of(target)
    )
    problem = boosting.prepared.dataset.problem_ids
    rows = np.flatnonzero(np.bincount(problem)[problem] >= _FEWEST_KERNELS)
    for other in others if splits and len(rows) else ():
        ours, its = (boosting.prepared.chosen_efficiency(made.predicted, rows) for made in (best, other))
        best = other if is_gain(its - ours, _FEWEST_PROBLEMS, _DEVIATIONS) else best
    return best


def _validated_fit(boosting: Boosting, fit: Fit, splits: Sequence[FoldSplit], *, is_corrected: bool) -> Validated:
    options, predicted, correction = boosting.options, np.full(len(fit.label), np.nan), None
    if splits and fit.target not in (TFLOPS, RANK) and boosting.has_many:
        splits = splits[:1]
    trees = []
    for number, split in enumerate(splits):
        model = boosting.fit(fit, split.train, split.stop, f"{fit.target}, fold {number + 1}")
        predicted[split.score] = boosting.prepared.matrix.predict(model, split.score)
        trees.append(int(model.best_iteration))
    if is_corrected:
        predicted, correction = boosting.corrected(fit, predicted, splits)
    rows = zip(splits if options.folds else (), trees, strict=False)
    folds = [_metrics(boosting, number, fit, split, predicted, best) for number, (split, best) in enumerate(rows)]
    return Validated(fit, predicted, tuple(folds), tuple(trees), correction)


def _metrics(
    boosting: Boosting, number: int, fit: Fit, split: FoldSplit, predicted: NDArray[np.float64], best_iteration: int
) -> FoldMetrics:
    label, error = fit.label[split.score], predicted[split.score] - fit.label[split.score]
    ranks = fit.target in (TFLOPS, RANK)
    chosen = boosting.prepared.chosen_efficiency(predicted, split.score) if ranks else None
    # Scores with an estimate are logarithms of times.
    has_no_scale = fit.is_grouped or (fit.target == RANK and boosting.estimated is not None)
    squared, variance = float(np.mean(error**2)), float(label.var())
    return FoldMetrics(
        fold=number,
        rmse=None if has_no_scale else float(np.sqrt(squared)),
        r2=None if has_no_scale or variance == 0 else 1.0 - squared / variance,
        mean_efficiency=None if chosen is None else float(chosen.mean()),
        p10_efficiency=None if chosen is None else float(np.percentile(chosen, 10)),
        train_size=len(split.train),
        val_size=len(split.score),
        val_groups=len(np.unique(boosting.prepared.dataset.problem_ids[split.score])),
        best_iteration=best_iteration,
    )


def _fitted(boosting: Boosting, validated: Validated) -> TrainedTarget:
    """Fit a target to all rows, with the number of trees determined by its folds."""
    prepared, options, fit, folds = boosting.prepared, boosting.options, validated.fit, validated.folds
    rows = np.arange(len(fit.label))
    before = 0 if prepared.start is None else prepared.start.trees[fit.target]
    most = before + options.params.n_estimators
    trees = round(median(validated.trees)) if validated.trees else most
    if validated.correction == 0:
        trees = 1  # without weight
    final = boosting.fit(fit, rows, None, f"{fit.target}, final", trees - before)
    ranks = bool(folds) and fit.target in (TFLOPS, RANK)
    chosen = prepared.chosen_efficiency(validated.predicted, rows) if ranks else None
    text = _THREADS.sub("[num_threads: 0]", final.model_to_string(num_iteration=trees))
    if validated.correction is not None:
        text = shorten(scale_leaves(text, validated.correction))
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
        comparison=_against_start(boosting, fit.target, chosen),
        correction=validated.correction,
    )


def _against_start(boosting: Boosting, target: str, chosen: NDArray[np.float64] | None) -> ModelComparison | None:
    """Compare the held-out choices with those of the start."""
    prepared, options, start = boosting.prepared, boosting.options, boosting.prepared.start
    if start is None or chosen is None or target != options.rank_target:
        return None
    scores = prepared.matrix.predict(start.model.booster(target), num_threads=options.jobs)
    if boosting.estimated is not None:
        scores -= boosting.estimated
    before = prepared.chosen_efficiency(scores, np.arange(len(scores)))
    return compare(before, chosen, seen(prepared.dataset, start.problems) if start.problems else None)


def seen(dataset: Dataset, known: frozenset[str]) -> NDArray[np.bool_]:
    """Mask of a dataset's problems seen by a model that knows some problems, shape (problems,).

    A problem is seen if the model knows any problem of its cross-validation group.
    """
    is_known = np.array([problem_id(problem) in known for problem in dataset.problems()])
    group = dataset.split_ids[dataset.first_rows]
    in_group = np.zeros(int(group.max()) + 1, dtype=bool)
    np.logical_or.at(in_group, group, is_known)
    return np.asarray(in_group[group])
