"""Parser of LightGBM's model text into flat arrays.

Format and semantics are those of LightGBM's `src/io/tree.cpp` (version 4): every split node has a decision type with
bit 0 for categorical, bit 1 for "default left", and bits 2-3 for the missing type (0 none, 1 zero, 2 NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ckh.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

# Objectives whose output is the plain sum of leaves.
_IDENTITY_OBJECTIVES = (
    "regression",
    "regression_l2",
    "regression_l1",
    "huber",
    "fair",
    "quantile",
    "mape",
    "lambdarank",
)


_MOST_OF_WORD = 2**32 - 1

# LightGBM writes 24 lines for a tree and about 40 before the first. These limits are far above that; they exist
# because parsing text with many more lines takes fifty times its size in memory.
_MOST_TREES = 1 << 20
_MOST_LINES = 1024  # per tree, or before the first
_MOST_LEAVES = 1 << 17  # LightGBM's own limit of num_leaves
_MOST_INPUTS = 1 << 14
_LARGEST_LEAF = 1e30  # with larger values, sums and speeds may not be finite


@dataclass(frozen=True, slots=True)
class Forest:
    """All trees of a model in flat arrays.

    Nodes are numbered across all trees. A non-negative child is a node, otherwise `~child` is a leaf. A one-leaf tree
    has a root that is already `~leaf`.
    """

    feature_names: tuple[str, ...]
    roots: IntArray
    feature: IntArray
    threshold: FloatArray
    decision: IntArray
    left: IntArray
    right: IntArray
    leaf_value: FloatArray
    category_start: IntArray
    category_count: IntArray
    category_words: IntArray


def parse_forest(text: str) -> Forest:
    """Parse a model from LightGBM's text."""
    if text.count("\nTree=") > _MOST_TREES:
        raise ModelError(f"it has more than {_MOST_TREES} trees", code="too-large")
    head, *blocks = text.split("\nTree=")
    if not head.startswith("tree\n") or not blocks or "\nend of trees" not in blocks[-1]:
        raise ModelError("not a complete LightGBM model text", code="damaged-model")
    try:
        header = _fields(head)
        _refuse_unknown(header, head)
        names = header["feature_names"]
        if names.count(" ") > _MOST_INPUTS:
            raise ModelError(f"it has more than {_MOST_INPUTS} inputs", code="too-large")
        return _join(tuple(names.split()), map(_fields, blocks))
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        raise ModelError(f"damaged LightGBM model text: {error}", code="damaged-model") from error


def _fields(block: str) -> dict[str, str]:
    if block.count("\n") > _MOST_LINES:
        block = block.partition("\nend of trees\n")[0]  # importances and parameters, with a line per input
    if block.count("\n") > _MOST_LINES:
        raise ValueError(f"more than {_MOST_LINES} lines of a tree, or before the first")
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _refuse_unknown(header: dict[str, str], head: str) -> None:
    objective = header.get("objective", "regression").split()
    if header.get("num_class", "1") != "1" or header.get("num_tree_per_iteration", "1") != "1":
        raise ModelError("a LightGBM model of several classes cannot rank kernels", code="unsupported-model")
    if "average_output" in head.splitlines():
        raise ModelError("LightGBM's averaged output (random forests) is not supported", code="unsupported-model")
    if objective[0] not in _IDENTITY_OBJECTIVES or "sqrt" in objective:
        raise ModelError(f"LightGBM objective {' '.join(objective)!r} is not supported", code="unsupported-model")


def _join(names: tuple[str, ...], trees: Iterable[dict[str, str]]) -> Forest:
    parts: dict[str, list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]] = {}
    roots, nodes, leaves, words = [], 0, 0, 0
    for tree in trees:
        if tree.get("is_linear", "0") != "0":
            raise ModelError("linear trees are not supported", code="unsupported-model")
        values = _numbers(tree["leaf_value"], np.float64)
        if tree.get("num_leaves", str(len(values))) != str(len(values)):
            raise ValueError(f"num_leaves is {tree['num_leaves'][:20]}, and there are {len(values)} values of leaves")
        splits = len(values) - 1
        roots.append(nodes if splits else ~leaves)
        parts.setdefault("leaf_value", []).append(values)
        if splits:
            start, count, sets = _categories(tree, splits)
            columns = {
                "feature": _numbers(tree["split_feature"], np.int64),
                "threshold": _numbers(tree["threshold"], np.float64),
                "decision": _numbers(tree["decision_type"], np.int64),
                "left": _shift(_numbers(tree["left_child"], np.int64), nodes, leaves),
                "right": _shift(_numbers(tree["right_child"], np.int64), nodes, leaves),
                "category_start": start + words,
                "category_count": count,
            }
            for key, column in columns.items():
                if len(column) != splits:
                    raise ValueError(f"{key} has {len(column)} entries instead of {splits}")
                parts.setdefault(key, []).append(column)
            parts.setdefault("category_words", []).append(sets)
            words += len(sets)
        nodes, leaves = nodes + splits, leaves + len(values)
    forest = Forest(
        feature_names=names, roots=np.array(roots, np.int64), **{k: _concatenate(parts, k) for k in _DTYPES}
    )
    _check_indices(forest)
    return forest


_DTYPES: dict[str, type[np.generic]] = {
    "feature": np.int64,
    "threshold": np.float64,
    "decision": np.int64,
    "left": np.int64,
    "right": np.int64,
    "leaf_value": np.float64,
    "category_start": np.int64,
    "category_count": np.int64,
    "category_words": np.int64,
}


def _concatenate(parts: dict[str, list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]], key: str) -> NDArray:  # type: ignore[type-arg]
    return np.concatenate(parts[key]) if key in parts else np.zeros(0, _DTYPES[key])


def _numbers(text: str, dtype: type[np.generic]) -> NDArray:  # type: ignore[type-arg]
    if text.count(" ") > _MOST_LEAVES:
        raise ValueError(f"more than {_MOST_LEAVES} numbers of a tree")
    return np.array(text.split(), dtype=dtype)


def _shift(children: IntArray, nodes: int, leaves: int) -> IntArray:
    return np.where(children >= 0, children + nodes, children - leaves)


def _categories(tree: dict[str, str], splits: int) -> tuple[IntArray, IntArray, IntArray]:
    start = count = np.zeros(splits, np.int64)
    if int(tree["num_cat"]) == 0:
        return start, count, np.zeros(0, np.int64)
    bounds = _numbers(tree["cat_boundaries"], np.int64)
    categorical = (_numbers(tree["decision_type"], np.int64) & 1) == 1
    words = _numbers(tree["cat_threshold"], np.int64)
    tested = np.where(categorical, _numbers(tree["threshold"], np.float64), 0)  # index of the set of categories
    if not ((tested >= 0) & (tested < len(bounds) - 1)).all():  # also fails for NaN
        raise ValueError("a split tests a set of categories that does not exist")
    if len(bounds) and not (bounds[0] >= 0 and (bounds[1:] >= bounds[:-1]).all() and bounds[-1] <= len(words)):
        raise ValueError("a set of categories is out of range")
    if ((words < 0) | (words > _MOST_OF_WORD)).any():
        raise ValueError("a set of categories does not consist of 32-bit words")
    which = tested.astype(np.int64)
    start = np.where(categorical, bounds[which], 0)
    count = np.where(categorical, bounds[which + 1] - bounds[which], 0)
    return start, count, words


def _check_indices(forest: Forest) -> None:
    if not (np.abs(forest.leaf_value) <= _LARGEST_LEAF).all():  # also fails for NaN
        raise ValueError(f"a leaf value is not a number, or beyond {_LARGEST_LEAF:g}")
    nodes, leaves = len(forest.feature), len(forest.leaf_value)
    for children in (forest.left, forest.right, forest.roots):
        if len(children) and not (-leaves <= children.min() and children.max() < max(nodes, 1)):
            raise ValueError("a child is out of range")
    for children in (forest.left, forest.right):
        inner = np.flatnonzero(children >= 0)
        if (children[inner] <= inner).any():
            raise ValueError("a child does not come after its parent")
    if nodes and not (forest.feature.min() >= 0 and forest.feature.max() < len(forest.feature_names)):
        raise ValueError("a split tests a feature that does not exist")
