"""Data shared by all fits of a training: rows and features.

Cross-validation splits without leaks: by complete problem identity, with a separate fold for early stopping.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.times import efficiency_of
from ckh.errors import DataError, UsageError
from ckh.learn.models.spec import spec_of
from ckh.learn.training.feature_matrix import FeatureMatrix
from ckh.learn.training.rivals import with_rivals
from ckh.learn.training.warm_start import Start, check_start
from ckh.training import RANK, Labels, RankObjective, TrainOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

MIN_GROUPS = 3  # train, early stopping, score


@dataclass(frozen=True, slots=True, eq=False)
class FoldSplit:
    """Row indices of a fold: trained on `train`, stopped early by `stop`, scored on `score`."""

    train: NDArray[np.int64]
    stop: NDArray[np.int64]
    score: NDArray[np.int64]


def grouped_splits(groups: NDArray[np.int64], folds: int) -> Iterator[FoldSplit]:
    """Yield one split per fold; each row is scored once. Fewer folds for fewer groups, none below three groups.

    Args:
        groups: index of each row's problem, shape (rows,).
        folds: number of folds, at least 3.
    """
    from sklearn.model_selection import GroupKFold

    count = min(folds, len(np.unique(groups)))
    if count < MIN_GROUPS:
        return
    parts = [held for _, held in GroupKFold(count).split(groups, groups=groups)]
    for i, score in enumerate(parts):
        stop = parts[(i + 1) % count]
        others = [parts[j] for j in range(count) if j not in (i, (i + 1) % count)]
        yield FoldSplit(np.sort(np.concatenate(others)), stop, score)


_FEWEST_ROWS = 2  # minimum for LightGBM


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Data shared by all fits.

    Attributes:
        known: the valid rows of the data.
        dataset: the rows to fit, for winners including their rivals.
        matrix: features of these rows.
        efficiency: efficiency of each row, shape (rows,).
        start: the model of a warm start.
    """

    known: Dataset
    dataset: Dataset
    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]
    start: Start | None

    def splits(self, folds: int) -> list[FoldSplit]:
        """Splits of cross-validation; empty for too few groups."""
        return list(grouped_splits(self.dataset.split_ids, folds))

    def chosen_efficiency(self, scores: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Efficiency of each problem's highest score, shape (problems of the rows,).

        Args:
            scores: scores of all rows; only those of `rows` are used.
            rows: indices of the rows to choose from.
        """
        problem = np.unique(self.dataset.problem_ids[rows], return_inverse=True)[1]
        chosen = choices(scores[rows], problem, int(problem.max()) + 1)
        return np.asarray(self.efficiency[rows[chosen]])


def prepare(dataset: Dataset, options: TrainOptions, start: Start | None = None) -> Prepared:
    """Validate training data, and extract features.

    Raises:
        DataError: there is no valid row, the rows are of several directions, dtypes or architectures, or of too few
            problems for mining.
        UsageError: the start is incompatible, or mining is used without folds or with two objectives.
    """
    of_winners = options.labels is Labels.WINNERS
    valid = dataset.winners() if of_winners else dataset.valid()
    _check_rows(valid)
    _check_mining(valid, options)
    if start is not None:
        start = replace(start, differs=check_start(start, spec_of(valid, options.all_targets), options))
    rows = with_rivals(valid, options.seed) if of_winners else valid
    columns = {name: rows.frame[name].to_numpy() for name in rows.op.training.input_columns}
    return Prepared(
        known=valid,
        dataset=rows,
        matrix=FeatureMatrix(rows.op.training.engine, columns, rows.hardware()),
        efficiency=efficiency_of(rows),
        start=start,
    )


def check_options(options: TrainOptions, start: Start | None) -> None:
    """Refuse incompatible options.

    Raises:
        UsageError: an ensemble without a ranking model, winners with anything but a ranking, or a prior where it is not
            supported.
    """
    if options.ensemble > 1 and options.rank_target != RANK:
        raise UsageError(
            "an ensemble needs a ranking objective",
            "omit --ensemble or --rank",
            code="conflicting-options",
        )
    if options.labels is Labels.WINNERS and (options.targets or options.rank is not RankObjective.LAMBDARANK):
        raise UsageError(
            "data of winners allow a ranking only",
            "give --rank lambdarank and no --targets",
            code="conflicting-options",
        )
    if options.prior and (options.rank is not RankObjective.EFFICIENCY or start is not None):
        raise UsageError(
            "a prior needs a model of efficiency, without a warm start",
            "omit --prior",
            code="conflicting-options",
        )
    if options.lambdarank and not options.prior:
        raise UsageError(
            "an additional LambdaRank needs a model of efficiency with a prior",
            "omit --lambdarank",
            code="conflicting-options",
        )


def check_distributed(options: TrainOptions, start: Start | None) -> None:
    """Refuse options that distributed training does not support.

    Raises:
        UsageError: a warm start, an ensemble or blend, or weights or rows that depend on all rows.
    """
    for what, is_wanted in (
        ("--warm-start", start is not None),
        ("--ensemble", options.ensemble > 1),
        ("--rank blend", options.rank is RankObjective.BLEND),
        ("--mine", options.mine > 0),
        ("--labels winners", options.labels is Labels.WINNERS),
    ):
        if is_wanted:
            raise UsageError(
                f"--distributed and {what} exclude each other",
                "omit it; where the operation has such a recipe, give --rank efficiency --ensemble 1",
                code="conflicting-options",
            )


def _check_rows(valid: Dataset) -> None:
    if not len(valid.frame):
        raise DataError("the dataset has no valid time", "see the column status for why", code="not-measured")
    if len(valid.frame) < _FEWEST_ROWS:
        raise DataError(f"the dataset has only {len(valid.frame)} valid row", code="few-problems")
    for name in ("arch", *valid.op.training.model_per):
        if len(result := sorted(valid.frame[name].unique())) > 1:
            hint = "choose one with --variant" if name == "variant" else "train one model for each"
            raise DataError(f"the dataset has several values of {name}: {', '.join(result)}", hint, code="mixed-data")


def _check_mining(valid: Dataset, options: TrainOptions) -> None:
    if options.mine and options.rank is RankObjective.BLEND:
        raise UsageError(
            "hard examples cannot be mined for a blend, which has two objectives",
            "omit --mine or --rank",
            code="conflicting-options",
        )
    if options.mine and not options.folds:
        raise UsageError(
            "hard examples cannot be mined without folds",
            "give --folds 3 or more",
            code="missing-option",
        )
    if options.mine and len(np.unique(valid.split_ids)) < MIN_GROUPS:
        raise DataError("too few problems to mine hard ones by cross-validation", "omit --mine", code="few-problems")


def too_few_to_validate(dataset: Dataset) -> bool:
    """True if there are too few problems for cross-validation."""
    return len(np.unique(dataset.problem_ids)) < MIN_GROUPS
