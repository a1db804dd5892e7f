"""Cross-validation splits that do not leak: by complete problem identity, with early stopping on a fold of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MIN_GROUPS = 3  # one to train on, one to stop on, one to score


@dataclass(frozen=True, slots=True, eq=False)
class FoldSplit:
    """Row numbers of one round: trained on `train`, stopped by `stop`, scored on `score`."""

    train: NDArray[np.int64]
    stop: NDArray[np.int64]
    score: NDArray[np.int64]


def grouped_splits(groups: NDArray[np.int64], folds: int) -> Iterator[FoldSplit]:
    """One split per fold; each row is scored once. Fewer folds if there are fewer groups, none below three groups.

    Args:
        groups: number of each row's problem, shape (rows,).
        folds: how many, at least 3.
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
