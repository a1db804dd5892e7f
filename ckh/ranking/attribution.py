"""Attribution of a score difference between two rows to features, with exact shares.

Interventional Shapley values with the other row as the only background (Lundberg and others, "From local explanations
to global understanding with explainable AI for trees", Nature Machine Intelligence 2, 2020): a feature's share is the
mean, over all orders in which features change from the second row's values to the first's, of what its change adds. A
leaf is reached if `a` features have the first row's values and `b` others the second's: it adds its value times (a-1)!
b! / (a+b)! to each of the former and subtracts its value times a! (b-1)! / (a+b)! from each of the latter.
"""

from __future__ import annotations

from math import factorial
from typing import TYPE_CHECKING

import numpy as np

from ckh.ranking.packed import holds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ranking.packed import PackedForest


def difference_by_feature(
    forest: PackedForest, first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Decompose the first row's score minus the second's into one summand per feature, shape (features,)."""
    columns = np.stack([first, second], axis=1)
    held = [holds(forest, family, columns[feature]) for family, feature in enumerate(forest.families[:, 0])]
    outcome = np.concatenate([np.zeros((0, 2), np.bool_), *held]).tolist()
    feature_of_test = np.repeat(forest.families[:, 0], forest.families[:, 3]).tolist()
    nodes, leaves = forest.nodes.tolist(), forest.to_float(forest.leaves).tolist()
    shares = np.zeros(len(first))
    if forest.is_input:
        shares[forest.families[0, 0]] += first[forest.families[0, 0]] - second[forest.families[0, 0]]
    for root in forest.roots.tolist():
        # A node, and the features that the path to it requires from the first row, and from the second.
        waiting: list[tuple[int, frozenset[int], frozenset[int]]] = [(root, frozenset(), frozenset())]
        while waiting:
            at, ours, theirs = waiting.pop()
            if at < 0:
                _add_leaf(shares, leaves[~at], ours, theirs)
                continue
            test, left, right = nodes[at]
            feature = feature_of_test[test]
            here, there = (left if is_left else right for is_left in outcome[test])
            if here == there or feature in ours:
                waiting.append((here, ours, theirs))
            elif feature in theirs:
                waiting.append((there, ours, theirs))
            else:
                waiting += [(here, ours | {feature}, theirs), (there, ours, theirs | {feature})]
    return shares


def _add_leaf(shares: NDArray[np.float64], leaf: float, ours: frozenset[int], theirs: frozenset[int]) -> None:
    a, b = len(ours), len(theirs)
    for feature in ours:
        shares[feature] += leaf * factorial(a - 1) * factorial(b) / factorial(a + b)
    for feature in theirs:
        shares[feature] -= leaf * factorial(a) * factorial(b - 1) / factorial(a + b)
