"""Evaluates a forest in NumPy: all rows walk down a block of trees together, one level a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ranking.lightgbm_text import FloatArray, Forest, IntArray

_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING_ZERO, _MISSING_NAN = 1, 2
_ZERO_BOUND = 1e-35  # LightGBM's kZeroThreshold, as a float
_WALKERS = 1 << 16  # (tree, row) pairs walked at once: small enough for the cache


def predict(forest: Forest, matrix: FloatArray) -> FloatArray:
    """Sum of the leaves that each row reaches, added in the order of the trees as LightGBM does.

    Args:
        forest: the trees.
        matrix: features, shape (rows, features).

    Returns:
        Raw scores, shape (rows,).
    """
    rows = len(matrix)
    total = np.zeros(rows)
    if not rows:
        return total
    columns = np.ascontiguousarray(matrix.T, dtype=np.float64)
    block = max(_WALKERS // rows, 1)
    for first in range(0, len(forest.roots), block):
        roots = forest.roots[first : first + block]
        for values in forest.leaf_value[_leaves(forest, columns, roots)]:
            total += values
    return total


def _leaves(forest: Forest, columns: FloatArray, roots: IntArray) -> IntArray:
    rows = columns.shape[1]
    at = np.repeat(roots, rows)
    row = np.tile(np.arange(rows), len(roots))
    walking = np.flatnonzero(at >= 0)
    while len(walking):
        node = at[walking]
        goes_left = _decide(forest, node, columns[forest.feature[node], row[walking]])
        child = np.where(goes_left, forest.left[node], forest.right[node])
        at[walking] = child
        walking = walking[child >= 0]
    return (~at).reshape(len(roots), rows)


def _decide(forest: Forest, node: IntArray, value: FloatArray) -> NDArray[np.bool_]:
    decision = forest.decision[node]
    missing = (decision >> 2) & 3
    nan = np.isnan(value)
    numeric = np.where(nan & (missing != _MISSING_NAN), 0.0, value)
    absent = ((missing == _MISSING_ZERO) & (np.abs(numeric) <= _ZERO_BOUND)) | ((missing == _MISSING_NAN) & nan)
    with np.errstate(invalid="ignore"):
        left = np.where(absent, (decision & _DEFAULT_LEFT) != 0, numeric <= forest.threshold[node])
    categorical = np.flatnonzero(decision & _CATEGORICAL)
    if len(categorical):
        left[categorical] = _in_set(forest, node[categorical], value[categorical])
    return left


def _in_set(forest: Forest, node: IntArray, value: FloatArray) -> NDArray[np.bool_]:
    usable = np.isfinite(value) & (value > -1) & (value < 2**31)
    category = np.where(usable, value, 0).astype(np.int64)
    word = category >> 5
    usable &= word < forest.category_count[node]
    bits = forest.category_words[np.where(usable, forest.category_start[node] + word, 0)]
    inside: NDArray[np.bool_] = usable & ((bits >> (category & 31)) & 1 == 1)
    return inside
