"""Tuning: parameters of the ranking model, chosen by successive halving (`halving`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.errors import DataError, UsageError
from ckh.learn.training.boosting import Boosting
from ckh.learn.training.halving import Tuning, draw, fits, halve
from ckh.learn.training.prepared import prepare
from ckh.learn.training.targets import make_fit
from ckh.learn.training.validation import Validation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.training.prepared import FoldSplit, Prepared
    from ckh.learn.training.targets import Fit
    from ckh.learn.training.warm_start import Start
    from ckh.training import TrainOptions, TreeParams


@dataclass(frozen=True, slots=True, eq=False)
class _Scoring:
    """Scores a setting on a fold, on this machine or another."""

    prepared: Prepared
    options: TrainOptions
    settings: tuple[TreeParams, ...]
    fit: Fit
    splits: tuple[FoldSplit, ...]

    def __call__(self, number: int, fold: int) -> NDArray[np.float64]:
        """Efficiency of a setting's choices on a fold, by the indices of both."""
        options = replace(self.options, params=self.settings[number])
        boosting = Boosting(self.prepared, options, lambda _steps, _text: None)
        return Validation(boosting).fold_efficiency(self.fit, self.splits[fold])


def tune(
    dataset: Dataset,
    options: TrainOptions,
    count: int,
    advance: Callable[[int, str], None],
    fixed: Sequence[str] = (),
    start: Start | None = None,
) -> Tuning:
    """Try settings of the ranking model's trees; equal arguments give equal results.

    Args:
        dataset: the training data.
        options: training options; their parameters are the default setting.
        count: number of settings, including the default.
        advance: called after every fit.
        fixed: parameters that are not tuned.
        start: a model to which all settings add trees.

    Raises:
        UsageError: there are no folds to score on, or the start is incompatible.
        DataError: there are too few problems to split, or the data cannot be trained on.
    """
    if not options.folds:
        raise UsageError("settings cannot be tuned without folds", "give --folds 3 or more", code="missing-option")
    prepared = prepare(dataset, options, start)
    splits = prepared.splits(options.folds)
    if not splits:
        raise DataError("too few problems to tune by cross-validation", "omit --tune", code="few-problems")
    settings = draw(count, options.params, options.seed, fixed)
    fit = make_fit(options.rank_target, prepared.dataset, options.rank)

    def done(number: int, fold: int) -> None:
        advance(1, f"setting {number + 1} of {len(settings)}, fold {fold + 1}")

    score = _Scoring(prepared, options, settings, fit, tuple(splits))
    trials, chosen = halve(settings, len(splits), score, done)
    advance(fits(count, options.folds) - fits(len(settings), len(splits)), "done")
    return Tuning(trials, chosen, options.seed, len(splits), tuple(sorted(fixed)))
