"""Limits of extrapolation: no speed is predicted for a problem far outside the training data.

Trees are constant beyond their largest threshold, which lies within the training data, so their speed is meaningless
there. If a size is more than `FAR` times the largest threshold on it, only the order of the kernels is used.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ckh.ops.base import Problem
    from ckh.ranking.packed import PackedForest

FAR = 8
_LOGARITHM = "log2_"


def reach_of(forest: PackedForest, sizes: Container[str]) -> dict[str, float]:
    """Largest threshold on each tested size, by name; thresholds on logarithms are converted."""
    from ckh.ranking.packed import CATEGORICAL

    reach: dict[str, float] = {}
    for feature, flags, first, count in forest.families.tolist():
        if flags & CATEGORICAL:
            continue
        name, largest = forest.feature_names[feature].lower(), float(forest.thresholds[first : first + count].max())
        if name.startswith(_LOGARITHM):
            name, largest = name[len(_LOGARITHM) :], 2.0 ** min(largest, 63.0)
        if name in sizes:
            reach[name] = max(largest, reach.get(name, largest))
    return reach


def peak_tflops(per_unit: Sequence[float], problem: Problem) -> float:
    """Peak TFLOPS of a problem's GPU, above which no speed is predicted."""
    peak, largest = per_unit
    return peak * (getattr(problem, "num_cus", 0) or largest) or math.inf


def possible_speeds(speeds: NDArray[np.float64], peaks: Sequence[float]) -> NDArray[np.float64]:
    """Replace speeds that are not finite, or above the peak of their problem, by NaN."""
    import numpy as np

    most = np.array(peaks).reshape(-1, *[1] * (speeds.ndim - 1))
    is_possible = np.isfinite(speeds) & (speeds <= most)
    return speeds if is_possible.all() else np.where(is_possible, speeds, np.nan)


def limits(reach: Mapping[str, float], sizes: Iterable[str]) -> list[float]:
    """Largest value of each size for which a speed is predicted; infinite if unlimited."""
    return [FAR * max(reach[name], 1.0) if name in reach else math.inf for name in sizes]


def are_beyond(problems: Sequence[Problem], reach: Mapping[str, float]) -> NDArray[np.bool_]:
    """Mask of the problems too far outside the training data for a predicted speed, shape (problems,)."""
    import numpy as np

    if not reach:
        return np.zeros(len(problems), np.bool_)
    sizes_of = attrgetter(*reach)
    sizes = np.array([sizes_of(problem) for problem in problems], np.float64).reshape(len(problems), -1)
    return np.asarray((sizes > limits(reach, reach)).any(axis=1))


def beyond(problem: Problem, reach: Mapping[str, float]) -> str:
    """Reason why a problem is too far outside the training data for a predicted speed, or an empty string."""
    for (name, largest), limit in zip(reach.items(), limits(reach, reach), strict=True):
        size = getattr(problem, name)
        if size > limit:
            return f"{name} = {size} is more than {FAR} times the largest trained value, {largest:.4g}"
    return ""
