"""The first configurations to measure: few that show every value, and every pair of values, as evenly as can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.search.space import Space

_POOL = 1000


def balanced_design(space: Space, count: int, rng: np.random.Generator) -> list[int]:
    """Choose configurations that share as few values as possible, greedily from a random pool.

    A candidate costs, for each one chosen, the square of how many values they share: like a Latin hypercube for the
    first order, and like an orthogonal array for the second, but of legal configurations only.
    """
    pool = rng.permutation(len(space))[:_POOL]
    codes = space.codes[pool]
    cost = rng.random(len(pool)) * 1e-3
    chosen: list[int] = []
    for _ in range(min(count, len(pool))):
        best = int(np.argmin(cost))
        chosen.append(int(pool[best]))
        cost += _shared(codes, codes[best]) ** 2
        cost[best] = np.inf
    return chosen


def _shared(codes: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.asarray(np.count_nonzero(codes == row, axis=1))
