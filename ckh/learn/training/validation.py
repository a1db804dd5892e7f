"""Cross-validation: every problem is scored by the model of a fold that has not seen it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.learn.analytic.corrected import row_scores
from ckh.learn.models.manifest import problem_id
from ckh.learn.training.trained import FoldMetrics, StartComparison, compare
from ckh.training import RANK, TFLOPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.training.boosting import Boosting
    from ckh.learn.training.prepared import FoldSplit
    from ckh.learn.training.targets import Fit


@dataclass(frozen=True, slots=True, eq=False)
class Validated:
    """Result of a cross-validation: out-of-fold prediction of each row, NaN without folds, and metrics of the folds."""

    fit: Fit
    predicted: NDArray[np.float64]
    folds: tuple[FoldMetrics, ...]


class Validation:
    """Cross-validates fits."""

    def __init__(self, boosting: Boosting) -> None:
        self._boosting = boosting
        self._prepared = boosting.prepared
        self._options = boosting.options

    def run(self, fit: Fit) -> Validated:
        """Cross-validate a fit.

        Of large data, a target that neither ranks nor predicts speeds has one fold: it determines the number of trees
        and the error only.
        """
        predicted = np.full(len(fit.label), np.nan)
        splits = self._prepared.splits(self._options.folds)
        if splits and fit.target not in (TFLOPS, RANK) and self._boosting.has_many:
            self._boosting.advance((len(splits) - 1) * self._options.params.n_estimators, fit.target)
            splits = splits[:1]
        folds = []
        for number, split in enumerate(splits):
            model = self._boosting.fit(fit, split.train, split.stop, f"{fit.target}, fold {number + 1}")
            predicted[split.score] = self._boosting.predicted(fit, model, split.train, split.score)
            folds.append(self._metrics(number, fit, split, predicted, int(model.best_iteration)))
        return Validated(fit, predicted, tuple(folds))

    def efficiency(self, validated: Validated) -> NDArray[np.float64] | None:
        """Efficiency of the held-out choices, shape (problems,); None if there are none."""
        if not validated.folds or validated.fit.target not in (TFLOPS, RANK):
            return None
        return self._prepared.chosen_efficiency(validated.predicted, np.arange(len(validated.predicted)))

    def against_start(self, target: str, chosen: NDArray[np.float64] | None) -> StartComparison | None:
        """Compare the held-out choices with those of the start."""
        start, dataset = self._prepared.start, self._prepared.dataset
        if start is None or chosen is None or target != self._options.rank_target:
            return None
        scores = self._prepared.matrix.predict(start.booster(target), num_threads=self._options.jobs)
        if start.spec.estimate is not None:
            scores += row_scores(dataset, start.spec.estimate)
        before = self._prepared.chosen_efficiency(scores, np.arange(len(scores)))
        return compare(before, chosen, seen(dataset, start.problems) if start.problems else None)

    def _metrics(
        self, number: int, fit: Fit, split: FoldSplit, predicted: NDArray[np.float64], best_iteration: int
    ) -> FoldMetrics:
        label, error = fit.label[split.score], predicted[split.score] - fit.label[split.score]
        ranks = fit.target in (TFLOPS, RANK)
        chosen = self._prepared.chosen_efficiency(predicted, split.score) if ranks else None
        # Scores with an estimate are logarithms of times.
        has_no_scale = fit.is_grouped or (fit.target == RANK and self._boosting.estimate(split.train) is not None)
        squared, variance = float(np.mean(error**2)), float(label.var())
        return FoldMetrics(
            fold=number,
            rmse=None if has_no_scale else float(np.sqrt(squared)),
            r2=None if has_no_scale or variance == 0 else 1.0 - squared / variance,
            mean_efficiency=None if chosen is None else float(chosen.mean()),
            p10_efficiency=None if chosen is None else float(np.percentile(chosen, 10)),
            train_size=len(split.train),
            val_size=len(split.score),
            val_groups=len(np.unique(self._prepared.dataset.problem_ids[split.score])),
            best_iteration=best_iteration,
        )


def seen(dataset: Dataset, known: frozenset[str]) -> NDArray[np.bool_]:
    """Mask of a dataset's problems seen by a model that knows some problems, shape (problems,).

    A problem is seen if the model knows any problem of its cross-validation group.
    """
    is_known = np.array([problem_id(problem) in known for problem in dataset.problems()])
    group = dataset.split_ids[dataset.first_rows]
    in_group = np.zeros(int(group.max()) + 1, dtype=bool)
    np.logical_or.at(in_group, group, is_known)
    return np.asarray(in_group[group])
