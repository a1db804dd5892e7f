"""Intervals of what changes from one choice to another, both on the same problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_BOOTSTRAPS = 2000
_DRAWN_VALUES = 1 << 20  # drawn at a time
_TAIL = 2.5  # percent on either side of a 95 % interval


def paired_interval(
    figure: Callable[..., Any], before: NDArray[np.float64], after: NDArray[np.float64], seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of figure(after) - figure(before), by a bootstrap over problems (percentile method).

    Each draw takes the same problems of both, so that what makes a problem hard for both cancels out.

    Args:
        figure: of values along `axis`, as `np.mean`.
        before: a value of each problem, shape (problems,).
        after: the same of the other choice, shape (problems,).
        seed: what the draws follow from.
    """
    random = np.random.default_rng(seed)
    step = max(1, _DRAWN_VALUES // len(before))
    found = []
    for start in range(0, _BOOTSTRAPS, step):
        drawn = random.integers(0, len(before), (min(step, _BOOTSTRAPS - start), len(before)))
        found.append(figure(after[drawn], axis=1) - figure(before[drawn], axis=1))
    low, high = np.percentile(np.concatenate(found), [_TAIL, 100 - _TAIL])
    return float(low), float(high)
