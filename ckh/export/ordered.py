"""Fallback lists: kernels in an order in which the first that applies to a problem is taken, without a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_GAIN = 1e-9


@dataclass(frozen=True, slots=True)
class OrderedList:
    """A fallback list and what it is worth on the problems that it was made of.

    Attributes:
        kernels: numbers of the kernels, in order.
        efficiency: mean efficiency of the first that applies to each problem; 0 where none does.
        covered: of how many problems some kernel of the list applies.
        single: the kernel that is best alone, where it does not apply with efficiency 0.
        single_efficiency: its mean efficiency.
    """

    kernels: tuple[int, ...]
    efficiency: float
    covered: int
    single: int
    single_efficiency: float


def ordered_list(efficiency: NDArray[np.float64], applies: NDArray[np.bool_], most: int) -> OrderedList:
    """The list that is built by inserting, again and again, the kernel at the place that gains most.

    Args:
        efficiency: of each problem and kernel, 0 to 1; shape (problems, kernels).
        applies: whether a kernel applies to a problem; a list takes it there, however slow it is.
        most: of how many kernels at most.
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
        kernels = [one for number, one in enumerate(kernels) if number in taken]
    found = _speeds(reached, applies, kernels)
    covered = int((_first(applies, kernels) >= 0).sum())
    return OrderedList(tuple(kernels), float(found.mean()), covered, single, float(means[single]))


def _first(applies: NDArray[np.bool_], kernels: list[int]) -> NDArray[np.intp]:
    """The place in the list of the first kernel that applies to each problem, -1 where none does."""
    if not kernels:
        return np.full(len(applies), -1)
    there = applies[:, kernels]
    return np.where(there.any(axis=1), there.argmax(axis=1), -1)


def _speeds(reached: NDArray[np.float64], applies: NDArray[np.bool_], kernels: list[int]) -> NDArray[np.float64]:
    """The efficiency of the list for each problem."""
    first = _first(applies, kernels)
    if not kernels:
        return np.zeros(len(applies))
    taken = np.array(kernels)[np.maximum(first, 0)]
    return np.where(first >= 0, reached[np.arange(len(reached)), taken], 0.0)


def _best_insertion(
    reached: NDArray[np.float64], applies: NDArray[np.bool_], kernels: list[int]
) -> tuple[int, int, float]:
    """The place and the kernel whose insertion gains most, and the sum of efficiencies that it gains."""
    first, now = _first(applies, kernels), _speeds(reached, applies, kernels)
    gains = np.where(applies, reached - now[:, None], 0.0)
    # Inserted at a place, a kernel gets the problems that nothing before that place applies to.
    is_free = np.stack([(first < 0) | (first >= place) for place in range(len(kernels) + 1)])
    total = is_free.astype(np.float64) @ gains
    place, kernel = divmod(int(total.argmax()), total.shape[1])
    return place, kernel, float(total[place, kernel])
