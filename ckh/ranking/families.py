"""The values at tests: the position from which on a family's tests hold, and bit masks of whom they hold for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.ranking.packed import CATEGORICAL, DEFAULT_LEFT, MISSING_NAN, MISSING_ZERO, ZERO_BOUND, PackedForest

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = 64
_CATEGORIES = 2**31


def holds(forest: PackedForest, family: int, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True if each test of a family holds for each value, shape (tests, values)."""
    _, flags, first, count = (int(field) for field in forest.families[family])
    if flags & CATEGORICAL:
        return _in_sets(forest, first, count, values)
    at = positions(forest.thresholds[first : first + count], flags, values)
    result: NDArray[np.bool_] = np.arange(count)[:, None] >= at
    return result


def positions(thresholds: NDArray[np.float64], flags: int, values: NDArray[np.float64]) -> NDArray[np.intp]:
    """First of a numerical family's tests that holds for each value; the later ones hold as well."""
    nan = np.isnan(values)
    if flags & MISSING_NAN:
        absent = nan
    else:
        values = np.where(nan, 0.0, values)
        absent = (np.abs(values) <= ZERO_BOUND) if flags & MISSING_ZERO else np.zeros(values.shape, np.bool_)
    at = np.searchsorted(thresholds, values)
    return np.where(absent, 0 if flags & DEFAULT_LEFT else len(thresholds), at)


def _in_sets(forest: PackedForest, first: int, count: int, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    usable = np.isfinite(values) & (values > -1) & (values < _CATEGORIES)
    category = np.where(usable, values, 0).astype(np.int64)
    result = np.zeros((count, len(values)), np.bool_)
    for row, (start, size) in zip(result, forest.sets[first : first + count], strict=True):
        inside = np.flatnonzero(usable & (category >> 5 < size))
        words = forest.words[start + (category[inside] >> 5)].astype(np.int64)
        row[inside] = (words >> (category[inside] & 31)) & 1
    return result


def words_for(count: int) -> int:
    """64-bit words that hold a bit for each of `count` things."""
    return (count + _WORD - 1) // _WORD


def as_masks(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Rows of booleans as rows of 64-bit words, the first in the lowest bit; shape (rows, words)."""
    rows, count = bits.shape
    padded = np.zeros((rows, words_for(count) * 8), np.uint8)
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded[:, : packed.shape[1]] = packed
    masks: NDArray[np.uint64] = padded.view("<u8").astype(np.uint64)
    return masks
