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
from ckh.training import Labels, RankObjective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.training import TrainOptions

MIN_GROUPS = 3  # train, early stopping, score


@dataclass(frozen=True, slots=True, eq=False)
class FoldSplit:
    """Row indices of a fold: trained on `train`, stopped early by `stop`, scored on `score`."""

    train: NDArray[np.int64]
    stop: NDArray[np.int64]
    score: NDArray[np.int64]


def grouped_splits(groups: NDArray[np.int64], folds: int) -> Iterator[FoldSplit]:
    """Yield one split per fold; each row is scored once. Fewer folds for fewer groups, none below three groups."""
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
    """Data shared by all fits, and the model of a warm start."""

    known: Dataset
    """The valid rows of the data."""
    dataset: Dataset
    """The rows to fit, for winners including their rivals."""
    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]
    start: Start | None

    def splits(self, folds: int) -> list[FoldSplit]:
        """Splits of cross-validation; empty for too few groups."""
        return list(grouped_splits(self.dataset.split_ids, folds))

    def chosen_efficiency(self, scores: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Efficiency of each problem's highest score among some rows, shape (problems of the rows,)."""
        problem = np.unique(self.dataset.problem_ids[rows], return_inverse=True)[1]
        chosen = choices(scores[rows], problem, int(problem.max()) + 1)
        return np.asarray(self.efficiency[rows[chosen]])


def prepare(dataset: Dataset, options: TrainOptions, start: Start | None = None) -> Prepared:
    """Validate training data and extract features; refuses rows of several kinds and an incompatible start."""
    of_winners = options.labels is Labels.WINNERS
    valid = dataset.winners() if of_winners else dataset.valid()
    _check_rows(valid)
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
    """Refuse incompatible options."""
    share = options.params.colsample_bytree
    for is_wrong, what, hint, code in (
        (not 0 < share <= 1, f"colsample_bytree is {share}, not from 0 to 1", "", "out-of-range"),
        (options.prior < 0, f"prior is {options.prior}, which must be at least 0", "", "out-of-range"),
        (
            options.labels is Labels.WINNERS and (options.targets or options.rank is not RankObjective.LAMBDARANK),
            "data of winners allow a ranking only",
            "give --rank lambdarank and no --targets",
            "conflicting-options",
        ),
        (
            options.prior and (options.rank is not RankObjective.EFFICIENCY or start is not None),
            "a prior needs a model of efficiency, without a warm start",
            "omit prior",
            "conflicting-options",
        ),
        (
            options.lambdarank and not options.prior,
            "an additional LambdaRank needs a model of efficiency with a prior",
            "omit --lambdarank",
            "conflicting-options",
        ),
    ):
        if is_wrong:
            raise UsageError(what, hint, code=code)


def _check_rows(valid: Dataset) -> None:
    if not len(valid.frame):
        raise DataError("the dataset has no valid time", "see the column status for why", code="not-measured")
    if len(valid.frame) < _FEWEST_ROWS:
        raise DataError(f"the dataset has only {len(valid.frame)} valid row", code="few-problems")
    for name in ("arch", *valid.op.training.model_per):
        if len(result := sorted(valid.frame[name].unique())) > 1:
            hint = "choose one with --variant" if name == "variant" else "train one model for each"
            raise DataError(f"the dataset has several values of {name}: {', '.join(result)}", hint, code="mixed-data")


def too_few_to_validate(dataset: Dataset) -> bool:
    """True if there are too few problems for cross-validation."""
    return len(np.unique(dataset.problem_ids)) < MIN_GROUPS
