"""Forests in NumPy alone: what installations without the C part rank with, and the reference of tests.

All rows walk down all trees together, one level a step. Leaf values are added as integers, so that scores are those of
the C part to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.ranking.packed import holds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ranking.packed import PackedForest

_CELLS = 1 << 24  # outcomes of tests, or walkers, that are held at once


def scores(forest: PackedForest, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raw scores of rows, shape (rows,).

    Args:
        forest: the forest.
        matrix: features, shape (rows, features).
    """
    step = max(_CELLS // max(len(forest.thresholds), len(forest.roots), 1), 1)
    sums = [_sums(forest, matrix[start : start + step].T) for start in range(0, len(matrix), step)]
    return forest.to_float(np.concatenate([np.zeros((0, 2), np.int64), *sums]))


def _sums(forest: PackedForest, columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sums of leaves of rows, shape (rows, 2)."""
    rows = columns.shape[1]
    held = [holds(forest, family, columns[feature]) for family, feature in enumerate(forest.families[:, 0])]
    outcome = np.concatenate([np.zeros((0, rows), np.bool_), *held])
    at = np.repeat(forest.roots, rows)
    row = np.tile(np.arange(rows), len(forest.roots))
    walking = np.flatnonzero(at >= 0)
    while len(walking):
        test, left, right = forest.nodes[at[walking]].T
        below = np.where(outcome[test, row[walking]], left, right)
        at[walking] = below
        walking = walking[below >= 0]
    sums: NDArray[np.int64] = forest.leaves[~at].reshape(len(forest.roots), rows, 2).sum(axis=0)
    return sums
