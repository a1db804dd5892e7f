"""Fallback lists: the first kernel of a list that applies to a problem is used, without a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_GAIN = 1e-9


@dataclass(frozen=True, slots=True)
class OrderedList:
    """A fallback list and its efficiency on the problems it was built from.

    Attributes:
        kernels: indices of the kernels, in order.
        efficiency: mean efficiency of the first applicable kernel; 0 where none applies.
        covered: number of problems to which a kernel of the list applies.
        single: the best single kernel, with efficiency 0 where it does not apply.
        single_efficiency: its mean efficiency.
    """

    kernels: tuple[int, ...]
    efficiency: float
    covered: int
    single: int
    single_efficiency: float


def ordered_list(efficiency: NDArray[np.float64], applies: NDArray[np.bool_], most: int) -> OrderedList:
    """Build a list greedily, each time inserting the kernel and position with the largest gain.

    Args:
        efficiency: efficiency of each problem and kernel, 0 to 1; shape (problems, kernels).
        applies: whether a kernel applies to a problem; a list uses it there, however slow it is.
        most: maximum number of kernels.
    """
    reached = np.where(applies, efficiency, 0.0)
    means = reached.mean(axis=0)
    single = int(means.argmax())
    kernels: list[int] = []
    while len(kernels) < most:
        place, kernel, gain = _best_insertion(reached, applies, kernels)
        if gain < _LEAST_GAIN:
            break
        kernels.insert(place, kernel)
        taken = set(_first(applies, kernels).tolist())
        kernels = [kernel for number, kernel in enumerate(kernels) if number in taken]
    result = _speeds(reached, applies, kernels)
    covered = int((_first(applies, kernels) >= 0).sum())
    return OrderedList(tuple(kernels), float(result.mean()), covered, single, float(means[single]))


def _first(applies: NDArray[np.bool_], kernels: list[int]) -> NDArray[np.intp]:
    """Index in the list of the first kernel that applies to each problem, -1 if none does."""
    if not kernels:
        return np.full(len(applies), -1)
    there = applies[:, kernels]
    return np.where(there.any(axis=1), there.argmax(axis=1), -1)


def _speeds(reached: NDArray[np.float64], applies: NDArray[np.bool_], kernels: list[int]) -> NDArray[np.float64]:
    """Efficiency of the list for each problem."""
    first = _first(applies, kernels)
    if not kernels:
        return np.zeros(len(applies))
    taken = np.array(kernels)[np.maximum(first, 0)]
    return np.where(first >= 0, reached[np.arange(len(reached)), taken], 0.0)


def _best_insertion(
    reached: NDArray[np.float64], applies: NDArray[np.bool_], kernels: list[int]
) -> tuple[int, int, float]:
    """Return the position and kernel with the largest gain, and the gain in summed efficiency."""
    first, now = _first(applies, kernels), _speeds(reached, applies, kernels)
    gains = np.where(applies, reached - now[:, None], 0.0)
    # Inserted at a position, a kernel serves the problems to which no earlier kernel applies.
    is_free = np.stack([(first < 0) | (first >= place) for place in range(len(kernels) + 1)])
    total = is_free.astype(np.float64) @ gains
    place, kernel = divmod(int(total.argmax()), total.shape[1])
    return place, kernel, float(total[place, kernel])
