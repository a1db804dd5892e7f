"""The packed forest: LightGBM's trees laid out for partial evaluation.

Every distinct test has one index. Tests that differ only in their threshold form a *family*, sorted by threshold, so
that one binary search of a value decides a whole family: tests hold from some position on. Trees are in depth-first
order.

Leaf values are integers, `high * 2**high_exponent + low * 2**low_exponent`, so that sums are exact: scores depend
neither on the order of additions nor on the implementation, and candidates that reach the same leaves tie. Low parts
are 0 unless a few leaves are so large that the others would lose digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ranking.lightgbm_text import Forest, IntArray

    Int32 = NDArray[np.int32]

CATEGORICAL, DEFAULT_LEFT, MISSING_ZERO, MISSING_NAN = 1, 2, 4, 8  # bits of a family's flags: LightGBM's decision type
ZERO_BOUND = float(np.float32(1e-35))  # LightGBM's kZeroThreshold
MAX_TREES = 1 << 20  # above this, sums of leaves would overflow
_MAX_COUNT = (1 << 30) - 1
_SUM_BITS = 61
_EXACT_BITS = 53  # of a double
_ENOUGH = 1e-15  # relative rounding error of high parts that needs no low parts (of the summed tree medians)


@dataclass(frozen=True, slots=True, eq=False)
class PackedForest:
    """A forest for partial evaluation."""

    feature_names: tuple[str, ...]
    roots: Int32
    nodes: Int32
    leaves: NDArray[np.int64]
    families: Int32
    thresholds: NDArray[np.float64]
    sets: Int32
    words: NDArray[np.uint32]
    high_exponent: int
    low_exponent: int
    is_input: bool = False

    @property
    def low_bits(self) -> int:
        """Bits of the low part of a leaf value: both parts less the high part."""
        return self.high_exponent - self.low_exponent

    def family_nodes(self) -> IntArray:
        """Number of nodes that test each family, shape (families,)."""
        of_test = np.repeat(np.arange(len(self.families)), self.families[:, 3])
        return np.bincount(of_test[self.nodes[:, 0]], minlength=len(self.families))

    def to_float(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        """Convert sums of leaf values to floating point; `sums` has high and low parts in its last axis."""
        shift = self.low_bits
        carry = sums[..., 1] >> shift
        high = (sums[..., 0] + carry).astype(np.float64)
        low = (sums[..., 1] - (carry << shift)).astype(np.float64)
        scores: NDArray[np.float64] = high * np.ldexp(1.0, self.high_exponent) + low * np.ldexp(1.0, self.low_exponent)
        return scores


def input_forest(name: str) -> PackedForest:
    """Build a forest whose score is its only input: a tree tests it, so that it is treated like any input."""
    return PackedForest(
        feature_names=(name,),
        roots=np.zeros(1, np.int32),
        nodes=np.array([[0, ~0, ~1]], np.int32),
        leaves=np.zeros((2, 2), np.int64),
        families=np.array([[0, 0, 0, 1]], np.int32),
        thresholds=np.zeros(1),
        sets=np.zeros((1, 2), np.int32),
        words=np.zeros(0, np.uint32),
        high_exponent=0,
        low_exponent=-low_bits_of(1),
        is_input=True,
    )


def with_input(forest: PackedForest, name: str, *, is_added: bool, step: float | None = None) -> PackedForest:
    """Put another input before a forest's; `is_added`: its value is added to the score, or a step if it is above 0."""
    families = forest.families + np.array([1, 0, 0, 0], np.int32)
    moved = replace(forest, feature_names=(name, *forest.feature_names), families=families)
    if not is_added:
        return moved
    first = input_forest(name)  # tested by a tree that adds nothing, as the ranking reads inputs that are tested
    if step is not None:
        first.leaves[1, 0] = round(step / 2.0**forest.high_exponent)
    tests, leaves = len(first.thresholds), len(first.leaves)
    nodes = forest.nodes + np.array([tests, 0, 0], np.int32)
    for side in (1, 2):
        nodes[:, side] += np.where(nodes[:, side] < 0, -leaves, len(first.nodes)).astype(np.int32)
    return replace(
        moved,
        roots=np.concatenate(
            [first.roots, forest.roots + np.where(forest.roots < 0, -leaves, len(first.nodes))]
        ).astype(np.int32),
        nodes=np.concatenate([first.nodes, nodes]),
        leaves=np.concatenate([first.leaves, forest.leaves]),
        families=np.concatenate([first.families, families + np.array([0, 0, tests, 0], np.int32)]),
        thresholds=np.concatenate([first.thresholds, forest.thresholds]),
        sets=np.concatenate([first.sets, forest.sets]),
        is_input=step is None,
    )


def pack(forest: Forest) -> PackedForest:
    """Pack a forest."""
    if not len(forest.roots) <= MAX_TREES or max(len(forest.feature), len(forest.leaf_value)) > _MAX_COUNT:
        raise ModelError("the model is too large to be packed", code="too-large")
    node_at, leaf_at = _depth_first(forest)
    test, families, thresholds, sets = _tests(forest)
    nodes = np.empty((len(test), 3), np.int32)
    nodes[node_at, 0] = test
    nodes[node_at, 1] = _moved(forest.left, node_at, leaf_at)
    nodes[node_at, 2] = _moved(forest.right, node_at, leaf_at)
    trees = np.searchsorted(np.sort(forest.roots[forest.roots >= 0]), np.arange(len(test)), side="right")
    parts, high_exponent, low_exponent = _integers(forest, trees)
    leaves = np.empty_like(parts)
    leaves[leaf_at] = parts
    return PackedForest(
        feature_names=forest.feature_names,
        roots=_moved(forest.roots, node_at, leaf_at),
        nodes=nodes,
        leaves=leaves,
        families=families,
        thresholds=thresholds,
        sets=sets,
        words=forest.category_words.astype(np.uint32),
        high_exponent=high_exponent,
        low_exponent=low_exponent,
    )


def _moved(children: IntArray, node_at: IntArray, leaf_at: IntArray) -> Int32:
    inner = children >= 0
    moved = np.empty(len(children), np.int32)
    moved[inner] = node_at[children[inner]]
    moved[~inner] = ~leaf_at[~children[~inner]]
    return moved


def _depth_first(forest: Forest) -> tuple[IntArray, IntArray]:
    """Renumber nodes and leaves: parents before children, left before right, tree after tree."""
    count, leaves = len(forest.feature), len(forest.leaf_value)
    children = np.concatenate([forest.roots, forest.left, forest.right])
    seen_nodes = np.bincount(children[children >= 0], minlength=count)
    seen_leaves = np.bincount(~children[children < 0], minlength=leaves)
    if len(seen_nodes) != count or len(seen_leaves) != leaves or (seen_nodes != 1).any() or (seen_leaves != 1).any():
        raise ModelError("damaged LightGBM model text: its trees are invalid", code="damaged-model")
    levels = []
    level = forest.roots[forest.roots >= 0]
    while len(level):
        levels.append(level)
        below = np.concatenate([forest.left[level], forest.right[level]])
        level = below[below >= 0]
    size = np.ones(count + 1, np.int64)
    size[-1] = 0  # for leaves, represented here by index -1
    left, right = np.where(forest.left >= 0, forest.left, -1), np.where(forest.right >= 0, forest.right, -1)
    for level in reversed(levels):
        size[level] += size[left[level]] + size[right[level]]
    at = np.zeros(count + 1, np.int64)
    roots = forest.roots[forest.roots >= 0]
    at[roots] = np.cumsum(size[roots]) - size[roots]
    for level in levels:
        at[left[level]] = at[level] + 1
        at[right[level]] = at[level] + 1 + size[left[level]]
    owner = np.empty(leaves, np.int64)  # the order of leaves is that of their parents
    for side, column in enumerate((forest.left, forest.right)):
        hanging = np.flatnonzero(column < 0)
        owner[~column[hanging]] = 2 * at[hanging] + side
    alone = forest.roots < 0
    owner[~forest.roots[alone]] = 2 * count + np.arange(alone.sum())
    leaf_at = np.empty(leaves, np.int64)
    leaf_at[np.argsort(owner, kind="stable")] = np.arange(leaves)
    return at[:-1], leaf_at


def _tests(forest: Forest) -> tuple[Int32, Int32, NDArray[np.float64], Int32]:
    """Test of each node, and the families, thresholds and sets of the distinct tests."""
    if np.isnan(forest.threshold).any():
        raise ModelError("damaged LightGBM model text: a threshold is not a number", code="damaged-model")
    categorical = (forest.decision & CATEGORICAL) != 0
    missing = forest.decision & (MISSING_ZERO | MISSING_NAN)
    flags = np.where(missing == 0, 0, missing | (forest.decision & DEFAULT_LEFT))
    flags = np.where(categorical, CATEGORICAL, flags)
    threshold = forest.threshold.copy()
    known: dict[bytes, int] = {}
    for node in np.flatnonzero(categorical):
        start = forest.category_start[node]
        words = forest.category_words[start : start + forest.category_count[node]]
        threshold[node] = known.setdefault(words.tobytes(), len(known))
    order = np.lexsort((threshold, flags, forest.feature))
    feature, flags, threshold = forest.feature[order], flags[order], threshold[order]
    is_new_family = np.ones(len(order), bool)
    is_new_family[1:] = (feature[1:] != feature[:-1]) | (flags[1:] != flags[:-1])
    is_new = is_new_family.copy()
    is_new[1:] |= threshold[1:] != threshold[:-1]
    test = np.empty(len(order), np.int32)
    test[order] = np.cumsum(is_new) - 1
    first = np.flatnonzero(is_new)
    starts = np.flatnonzero(is_new_family[first])
    chosen = first[starts]
    counts = np.diff(np.append(starts, len(first)))
    families = np.stack([feature[chosen], flags[chosen], starts, counts], axis=1).astype(np.int32).reshape(-1, 4)
    sets = np.stack([forest.category_start, forest.category_count], axis=1)[order][first]
    return test, families, threshold[first], sets.astype(np.int32).reshape(-1, 2)


def _integers(forest: Forest, tree_of_node: IntArray) -> tuple[NDArray[np.int64], int, int]:
    """Convert leaf values to high and low parts, with their units.

    The sum over trees of the largest values is below 2**61 in high parts. Both parts together truncate less than 2**-63
    of that sum, and for 2,000 trees less than 2**-83. If high parts suffice, low parts are 0.
    """
    trees = len(forest.roots)
    largest, typical = _sizes(forest, tree_of_node)
    with np.errstate(over="ignore"):
        total = float(largest.sum())
    if not np.isfinite(total):
        raise ModelError("damaged LightGBM model text: its leaf values are not finite", code="damaged-model")
    high_exponent = int(np.frexp(total)[1]) - _SUM_BITS
    shift = low_bits_of(trees)
    scaled = np.ldexp(forest.leaf_value, -high_exponent)
    high = np.rint(scaled)
    if np.ldexp(np.sqrt(trees), high_exponent) <= _ENOUGH * float(typical.sum()):
        parts = np.stack([high, np.zeros(len(high))], axis=1).astype(np.int64)
        return parts, high_exponent, high_exponent - shift
    low = np.rint(np.ldexp(scaled - high, shift)).astype(np.int64)
    carry = low >> shift  # so that low parts are not negative
    parts = np.stack([high.astype(np.int64) + carry, low - (carry << shift)], axis=1)
    return parts, high_exponent, high_exponent - shift


def _sizes(forest: Forest, tree_of_node: IntArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest and median magnitude of each tree's leaf values."""
    tree = np.empty(len(forest.leaf_value), np.int64)
    of_node = _root_of_node(forest, tree_of_node)
    for column in (forest.left, forest.right):
        hanging = np.flatnonzero(column < 0)
        tree[~column[hanging]] = of_node[hanging]
    alone = np.flatnonzero(forest.roots < 0)
    tree[~forest.roots[alone]] = alone
    size = np.abs(forest.leaf_value)
    size = size[np.lexsort((size, tree))]
    count = np.bincount(tree, minlength=len(forest.roots))
    end = np.cumsum(count)
    return size[end - 1], size[end - 1 - count // 2]


def low_bits_of(trees: int) -> int:
    """Number of bits of the low parts in a forest with `trees` trees."""
    return 2 * (_EXACT_BITS - trees.bit_length()) - _SUM_BITS


def _root_of_node(forest: Forest, rank: IntArray) -> IntArray:
    """Index of the tree of each node: a tree's nodes are contiguous, the root first."""
    with_nodes = np.flatnonzero(forest.roots >= 0)
    by_root = with_nodes[np.argsort(forest.roots[with_nodes], kind="stable")]
    return by_root[rank - 1] if len(rank) else rank


_WORD = 64
_CATEGORIES = 2**31


def holds(forest: PackedForest, family: int, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True where a test of a family holds for a value, shape (tests, values)."""
    _, flags, first, count = (int(field) for field in forest.families[family])
    if flags & CATEGORICAL:
        return _in_sets(forest, first, count, values)
    at = positions(forest.thresholds[first : first + count], flags, values)
    is_held: NDArray[np.bool_] = np.arange(count)[:, None] >= at
    return is_held


def positions(thresholds: NDArray[np.float64], flags: int, values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Index of the first of a numerical family's tests that holds for each value; the later ones hold as well."""
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
    is_inside = np.zeros((count, len(values)), np.bool_)
    for row, (start, size) in zip(is_inside, forest.sets[first : first + count], strict=True):
        inside = np.flatnonzero(usable & (category >> 5 < size))
        words = forest.words[start + (category[inside] >> 5)].astype(np.int64)
        row[inside] = (words >> (category[inside] & 31)) & 1
    return is_inside


def words_for(count: int) -> int:
    """Number of 64-bit words for `count` bits."""
    return (count + _WORD - 1) // _WORD


def as_masks(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack rows of booleans into 64-bit words, the first in the lowest bit; shape (rows, words)."""
    rows, count = bits.shape
    padded = np.zeros((rows, words_for(count) * 8), np.uint8)
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded[:, : packed.shape[1]] = packed
    masks: NDArray[np.uint64] = padded.view("<u8").astype(np.uint64)
    return masks
