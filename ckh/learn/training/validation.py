"""Cross-validation: every problem is scored by the model of a fold that has not seen it.

With hard-example mining, problems with the worst held-out choices get more weight in the next round. It is off by
default: if a problem is hard because its sizes are unlike all others, weight does not help, and AMD observed a loss of
1.4 % efficiency. So the round with equal weights is always compared, and the best round is kept. Weights and the kept
round are derived from held-out efficiencies: that of the kept round is biased upwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.cluster.calls import in_order
from ckh.learn.analytic.corrected import row_scores
from ckh.learn.models.manifest import problem_id
from ckh.learn.training.targets import Fit, weighted
from ckh.learn.training.trained import FoldMetrics, Mined, MiningRound
from ckh.learn.training.warm_start import StartComparison, compare
from ckh.training import RANK, TFLOPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.training.boosting import Boosting
    from ckh.learn.training.prepared import FoldSplit


@dataclass(frozen=True, slots=True, eq=False)
class Validated:
    """Result of a cross-validation.

    Attributes:
        fit: labels and weights for the final model.
        predicted: out-of-fold prediction of each row, shape (rows,); NaN without folds.
        folds: metrics of the folds.
        mined: result of hard-example mining, if used.
    """

    fit: Fit
    predicted: NDArray[np.float64]
    folds: tuple[FoldMetrics, ...]
    mined: Mined | None = None


class Validation:
    """Cross-validates fits.

    Args:
        boosting: fits the models.
    """

    def __init__(self, boosting: Boosting) -> None:
        self._boosting = boosting
        self._prepared = boosting.prepared
        self._options = boosting.options

    def run(self, fit: Fit) -> Validated:
        """Cross-validate a fit, with hard-example mining if requested."""
        if self._options.mine and fit.target == self._options.rank_target:
            return self._mined(fit)
        return self._validated(fit, fit.target)

    def fold_efficiency(self, fit: Fit, split: FoldSplit) -> NDArray[np.float64]:
        """Efficiency of the choices of one fold's model, shape (problems it is scored on,)."""
        return self._prepared.chosen_efficiency(self._predicted(fit, split, fit.target)[0], split.score)

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

    def _mined(self, fit: Fit) -> Validated:
        options, groups = self._options, self._prepared.dataset.problem_ids
        tried: list[Validated] = []

        def efficiency_of(number: int, weight: NDArray[np.float64]) -> NDArray[np.float64]:
            harder = weighted(fit, row_weights(weight, groups)) if number else fit
            tried.append(self._validated(harder, f"{fit.target}, mining {number} of {options.mine}"))
            return self._prepared.chosen_efficiency(tried[-1].predicted, np.arange(len(fit.label)))

        mined = mine(options.mine, int(groups.max()) + 1, efficiency_of)
        left = options.mine + 1 - len(mined.rounds)
        self._boosting.advance(left * options.folds * options.params.n_estimators, f"{fit.target}, mined")
        kept = tried[mined.kept]
        return Validated(kept.fit, kept.predicted, kept.folds, mined)

    def _validated(self, fit: Fit, text: str) -> Validated:
        predicted = np.full(len(fit.label), np.nan)
        splits = self._splits(fit.target, text)
        arguments = ((number, fit, split, text) for number, split in enumerate(splits))
        folds = []
        for split, (of_fold, metrics) in zip(splits, in_order(self._fold, arguments), strict=True):
            predicted[split.score] = of_fold
            folds.append(metrics)
        return Validated(fit, predicted, tuple(folds))

    def _splits(self, target: str, text: str) -> list[FoldSplit]:
        """All splits; for large data only the first, for a target that neither ranks nor predicts speeds.

        Its folds only determine the number of trees and the error.
        """
        splits = self._prepared.splits(self._options.folds)
        if not splits or target in (TFLOPS, RANK) or not self._boosting.has_many:
            return splits
        self._boosting.advance((len(splits) - 1) * self._options.params.n_estimators, text)
        return splits[:1]

    def _fold(self, number: int, fit: Fit, split: FoldSplit, text: str) -> tuple[NDArray[np.float64], FoldMetrics]:
        """Fit and score one fold; returns the predictions of the scored rows, and metrics."""
        predicted, best_iteration = self._predicted(fit, split, f"{text}, fold {number + 1}")
        return predicted[split.score], self._metrics(number, fit, split, predicted, best_iteration)

    def _predicted(self, fit: Fit, split: FoldSplit, text: str) -> tuple[NDArray[np.float64], int]:
        """Fit one fold; returns the predictions of the scored rows, shape (rows,), and the number of trees."""
        model = self._boosting.fit(fit, split.train, split.stop, text)
        predicted = np.full(len(fit.label), np.nan)
        predicted[split.score] = self._boosting.predicted(fit, model, split.train, split.score)
        return predicted, int(model.best_iteration)

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


HARD_SHARE = 0.2
FACTOR = 2.0
MOST = 5.0


def harder(weight: NDArray[np.float64], efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
    """Update the weights of problems from the efficiencies of a round, shape (problems,).

    Problems at or below the HARD_SHARE quantile of efficiency, and below 1, get FACTOR times the weight, at most MOST.
    """
    is_hard = (efficiency <= np.quantile(efficiency, HARD_SHARE)) & (efficiency < 1.0)
    return np.where(is_hard, np.minimum(weight * FACTOR, MOST), weight)


def row_weights(weight: NDArray[np.float64], problem: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of rows from those of their problems, shape (rows,), normalized to mean 1."""
    rows = weight[problem]
    return np.asarray(rows / rows.mean())


def mine(
    rounds: int,
    problems: int,
    efficiency_of: Callable[[int, NDArray[np.float64]], NDArray[np.float64]],
) -> Mined:
    """Train in rounds, each with weights derived from the previous one; stops early when weights do not change.

    Args:
        rounds: number of rounds after the round with equal weights.
        problems: number of problems.
        efficiency_of: trains with weights of problems; given the index of the round, returns the held-out efficiency of
            the choice for each problem. Shapes (problems,).
    """
    weight = np.ones(problems)
    made: list[MiningRound] = []
    for number in range(rounds + 1):
        efficiency = efficiency_of(number, weight)
        p10 = float(np.percentile(efficiency, 10))
        made.append(MiningRound(number, int((weight > 1.0).sum()), float(efficiency.mean()), p10))
        after = harder(weight, efficiency)
        if (after == weight).all():
            break
        weight = after
    return Mined(tuple(made), max(range(len(made)), key=lambda i: (made[i].mean_efficiency, -i)))
