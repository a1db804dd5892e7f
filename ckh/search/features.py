"""Features of a configuration for a surrogate: numbers scaled to 0..1, categories one-hot, and alignment.

Alignment is how often 2 divides a number: memory transactions, vector loads and waves come in powers of two, so 128
is nearer to 64 than to 112 in what matters. Powers of two need no such feature, their rank says it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.search.space import Parameter, Space

_BINARY = 2


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """A matrix, shape (configurations, features), and the group of each feature, which share one length scale."""

    matrix: NDArray[np.float64]
    groups: NDArray[np.int64]


def features_of(space: Space) -> Features:
    """The features of every configuration; parameters with one value give none."""
    columns: list[NDArray[np.float64]] = []
    groups: list[int] = []
    for i, parameter in enumerate(space.parameters):
        for block in _blocks(parameter):
            group = max(groups, default=-1) + 1
            columns += [block[space.codes[:, i], j] for j in range(block.shape[1])]
            groups += [group] * block.shape[1]
    if not columns:
        return Features(np.zeros((len(space), 1)), np.zeros(1, dtype=np.int64))
    return Features(np.stack(columns, axis=1), np.array(groups))


def _blocks(parameter: Parameter) -> list[NDArray[np.float64]]:
    """Feature values of each value of a parameter, shape (values, features), one array for each length scale."""
    count = len(parameter.values)
    if count == 1:
        return []
    if not parameter.is_ordered and count > _BINARY:
        # Two different categories are then as far apart as the ends of a scale.
        return [np.eye(count) / np.sqrt(2)]
    blocks = [np.linspace(0, 1, count)[:, None]]
    alignment = _alignment(parameter)
    return blocks if alignment is None else [*blocks, alignment[:, None]]


def _alignment(parameter: Parameter) -> NDArray[np.float64] | None:
    if not parameter.is_ordered or not all(value > 0 and value == int(value) for value in parameter.values):
        return None
    twos = np.array([(int(value) & -int(value)).bit_length() for value in parameter.values], dtype=np.float64)
    is_rank = all(int(value).bit_count() == 1 for value in parameter.values)
    if is_rank or np.ptp(twos) == 0:
        return None
    return np.asarray((twos - twos.min()) / np.ptp(twos))
