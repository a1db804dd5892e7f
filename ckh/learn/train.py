"""Training: cross-validation by problem, then a final fit with the number of trees that it found.

The same data, options and versions give the same bytes, whatever the number of threads.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.measured import times_of
from ckh.assess.metrics import choices
from ckh.errors import DataError
from ckh.learn.model_text import join_trees
from ckh.learn.options import RankObjective, TrainOptions
from ckh.learn.spec import RANK, TFLOPS
from ckh.learn.splits import MIN_GROUPS, Split, grouped_splits
from ckh.learn.targets import Fit, make_fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.features.engine import FeatureEngine

# The text names the number of threads, which must not make models of equal trees differ.
_THREADS = re.compile(r"^\[num_threads: \d+\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoldMetrics:
    """How a fold went.

    `rmse` and `r2` are of the label (log1p where the target is); LambdaRank's scores have no scale, so none there.
    Efficiencies only where the target ranks.
    """

    fold: int
    rmse: float | None
    r2: float | None
    mean_efficiency: float | None
    p10_efficiency: float | None
    train_size: int
    val_size: int
    val_groups: int
    best_iteration: int


@dataclass(frozen=True, slots=True)
class TrainedTarget:
    """A final model as LightGBM's text, its folds, and the split counts of its features.

    The out-of-fold efficiencies are over all problems, each scored by the fold that had not seen it.
    """

    text: str
    trees: int
    folds: tuple[FoldMetrics, ...]
    importances: dict[str, int]
    oof_mean_efficiency: float | None
    oof_p10_efficiency: float | None


@dataclass(frozen=True, slots=True)
class Trained:
    """All that training made, in memory."""

    dataset: Dataset
    all_rows: int
    options: TrainOptions
    feature_names: tuple[str, ...]
    categorical: tuple[str, ...]
    targets: dict[str, TrainedTarget]
    params: dict[str, Any]

    @property
    def rank_by(self) -> str:
        """The target that orders kernels."""
        return RANK if RANK in self.targets else TFLOPS


def target_names(options: TrainOptions) -> tuple[str, ...]:
    """The targets that are trained, in order."""
    return options.targets + (() if options.rank is RankObjective.TFLOPS else (RANK,))


def rounds(options: TrainOptions) -> int:
    """How many boosting rounds training may take, for a progress bar."""
    further = options.ensemble - 1 if options.rank is RankObjective.LAMBDARANK else 0
    return (len(target_names(options)) * (options.folds + 1) + further) * options.params.n_estimators


def train(dataset: Dataset, options: TrainOptions, advance: Callable[[int, str], None]) -> Trained:
    """Train every target on the valid rows of a dataset of one architecture, and one direction and dtype.

    Raises:
        DataError: there is no valid row, or the rows are of several directions, dtypes or architectures.
    """
    valid = dataset.valid()
    _check(valid)
    engine = valid.op.engine
    columns = {name: valid.frame[name].to_numpy() for name in valid.op.input_columns}
    matrix = engine.matrix(columns, valid.hardware())
    trainer = _Trainer(valid, engine, matrix, options, advance)
    targets = {target: trainer.train(make_fit(target, valid, options.rank)) for target in target_names(options)}
    return Trained(
        dataset=valid,
        all_rows=len(dataset.frame),
        options=options,
        feature_names=engine.names,
        categorical=engine.categorical,
        targets=targets,
        params={**options.params.to_dict(), "random_state": options.seed, "early_stopping": options.early_stopping},
    )


class _Trainer:
    def __init__(
        self,
        dataset: Dataset,
        engine: FeatureEngine,
        matrix: NDArray[np.float64],
        options: TrainOptions,
        advance: Callable[[int, str], None],
    ) -> None:
        self._engine = engine
        self._matrix = matrix
        self._options = options
        self._advance = advance
        self._groups = dataset.problem_ids
        self._split_groups = dataset.split_ids
        self._efficiency = times_of(dataset).efficiency()

    def train(self, fit: Fit) -> TrainedTarget:
        """Cross-validate and fit a target."""
        ranks = fit.target in (TFLOPS, RANK)
        oof = np.full(len(fit.label), np.nan)
        folds = []
        for number, split in enumerate(grouped_splits(self._split_groups, self._options.folds)):
            model = self._fit(fit, split.train, split.stop, f"{fit.target}, fold {number + 1}")
            oof[split.score] = model.booster_.predict(self._matrix[split.score])
            folds.append(self._metrics(number, fit, split, oof, int(model.best_iteration_)))
        trees = round(median(fold.best_iteration for fold in folds)) if folds else self._options.params.n_estimators
        final = self._fit(fit, np.arange(len(fit.label)), None, f"{fit.target}, final", trees)
        chosen = self._chosen_efficiency(oof, np.arange(len(oof))) if folds and ranks else None
        text = _THREADS.sub("[num_threads: 0]", final.booster_.model_to_string(num_iteration=trees))
        if fit.is_grouped and self._options.ensemble > 1:
            text = join_trees([text, *self._further(fit, trees)])
        counts = zip(self._engine.names, final.feature_importances_, strict=True)
        return TrainedTarget(
            text=text,
            trees=trees,
            folds=tuple(folds),
            importances={name: int(count) for name, count in counts},
            oof_mean_efficiency=None if chosen is None else float(chosen.mean()),
            oof_p10_efficiency=None if chosen is None else float(np.percentile(chosen, 10)),
        )

    def _further(self, fit: Fit, trees: int) -> Iterator[str]:
        """The other models of an ensemble."""
        rows = np.arange(len(fit.label))
        for number in range(1, self._options.ensemble):
            text = f"{fit.target}, model {number + 1}"
            yield self._fit(fit, rows, None, text, trees, number).booster_.model_to_string(num_iteration=trees)

    def _fit(
        self,
        fit: Fit,
        rows: NDArray[np.int64],
        stop: NDArray[np.int64] | None,
        text: str,
        trees: int | None = None,
        number: int = 0,
    ) -> Any:
        import lightgbm

        options = self._options
        budget = options.params.n_estimators
        done = 0

        def count_round(_: Any) -> None:
            nonlocal done
            done += 1
            self._advance(1, text)

        parameters = {
            **options.params.to_dict(),
            **fit.parameters,
            "n_estimators": budget if trees is None else trees,
            "random_state": options.seed + number,
            "n_jobs": options.jobs,
            "deterministic": True,
            "force_col_wise": True,
            "verbose": -1,
            "importance_type": "split",
        }
        kind = lightgbm.LGBMRanker if fit.is_grouped else lightgbm.LGBMRegressor
        rows = self._in_groups(rows) if fit.is_grouped else rows
        callbacks: list[Any] = [count_round]
        more: dict[str, Any] = {"group": self._group_sizes(rows)} if fit.is_grouped else {}
        if stop is not None:
            stop = self._in_groups(stop) if fit.is_grouped else stop
            callbacks.append(lightgbm.early_stopping(options.early_stopping, first_metric_only=True, verbose=False))
            held = (self._matrix[stop], fit.label[stop])
            # LightGBM 4.7 warns of eval_set, the versions before lack its successors.
            names = inspect.signature(kind.fit).parameters
            more |= {"eval_X": held[0], "eval_y": held[1]} if "eval_X" in names else {"eval_set": [held]}
            if fit.weight is not None:
                more["eval_sample_weight"] = [fit.weight[stop]]
            if fit.is_grouped:
                more["eval_group"] = [self._group_sizes(stop)]
        model = kind(**parameters).fit(
            self._matrix[rows],
            fit.label[rows],
            sample_weight=None if fit.weight is None else fit.weight[rows],
            feature_name=list(self._engine.names),
            categorical_feature=list(self._engine.categorical),
            callbacks=callbacks,
            **more,
        )
        self._advance(budget - done, text)
        return model

    def _in_groups(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[np.argsort(self._groups[rows], kind="stable")]

    def _group_sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.unique(self._groups[rows], return_counts=True)[1]

    def _chosen_efficiency(self, scores: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        problem = np.unique(self._groups[rows], return_inverse=True)[1]
        chosen = choices(scores[rows], problem, int(problem.max()) + 1)
        return np.asarray(self._efficiency[rows[chosen]])

    def _metrics(
        self, number: int, fit: Fit, split: Split, oof: NDArray[np.float64], best_iteration: int
    ) -> FoldMetrics:
        label, error = fit.label[split.score], oof[split.score] - fit.label[split.score]
        chosen = self._chosen_efficiency(oof, split.score) if fit.target in (TFLOPS, RANK) else None
        squared, variance = float(np.mean(error**2)), float(label.var())
        return FoldMetrics(
            fold=number,
            rmse=None if fit.is_grouped else float(np.sqrt(squared)),
            r2=None if fit.is_grouped or variance == 0 else 1.0 - squared / variance,
            mean_efficiency=None if chosen is None else float(chosen.mean()),
            p10_efficiency=None if chosen is None else float(np.percentile(chosen, 10)),
            train_size=len(split.train),
            val_size=len(split.score),
            val_groups=len(np.unique(self._groups[split.score])),
            best_iteration=best_iteration,
        )


def _check(valid: Dataset) -> None:
    if not len(valid.frame):
        raise DataError("the dataset has no usable time", "see the column status for why")
    for name in ("arch", *valid.op.model_per):
        if len(found := sorted(valid.frame[name].unique())) > 1:
            hint = "choose one with --variant" if name == "variant" else "train one model for each"
            raise DataError(f"the dataset holds several of {name}: {', '.join(found)}", hint)


def too_few_to_validate(dataset: Dataset) -> bool:
    """Whether there are too few problems for cross-validation."""
    return len(np.unique(dataset.problem_ids)) < MIN_GROUPS
