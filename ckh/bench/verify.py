"""Whether a kernel's result is right.

Every element must lie within `tolerance * sum |a||b|` of the float64 reference, where the sum runs over the element's
products. That is the norm in which rounding errors are bounded whatever cancels: n products summed in any order err by
at most n * 2^-24 of it (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and in practice, partial sums
being blocked and errors random, by a few 2^-24. We allow `2^-24 * (16 + sqrt(n))`: far above what right kernels do, and
below 1/n, what one forgotten product amounts to, for all n up to some ten thousand. An element without products must
be exactly zero. The bound itself is summed in float32: its terms are positive, so it is good to n * 2^-24.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.bench.reference import convolve, reduction_length

if TYPE_CHECKING:
    from ckh.problems import ConvProblem

Array = NDArray[Any]

FP32_ROUNDING = 2.0**-24
_CHUNK = 1 << 16


def tolerance(problem: ConvProblem) -> float:
    """The allowed error, relative to the sum of the magnitudes of an element's products."""
    return FP32_ROUNDING * (16 + sqrt(reduction_length(problem)))


class Limits:
    """The least and the greatest right value of every element of a result, in float32 for a quick comparison."""

    def __init__(self, problem: ConvProblem, a: Array, b: Array) -> None:
        exact = convolve(problem, a.astype(np.float64), b.astype(np.float64)).reshape(-1)
        margin = convolve(problem, np.abs(a), np.abs(b)).reshape(-1).astype(np.float64)
        margin *= tolerance(problem)
        self._low = (exact - margin).astype(np.float32)
        self._high = (exact + margin).astype(np.float32)

    def complaint(self, result: Array) -> str:
        """What is wrong with a result; empty if nothing is. NaN is never right."""
        flat = result.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            if not ((flat[part] >= self._low[part]) & (flat[part] <= self._high[part])).all():
                return self._describe(flat)
        return ""

    def _describe(self, flat: Array) -> str:
        wrong = ~((flat >= self._low) & (flat <= self._high))
        first = int(np.argmax(wrong))
        missing = int(np.count_nonzero(np.isnan(flat)))
        middle = (float(self._low[first]) + float(self._high[first])) / 2
        text = f"{np.count_nonzero(wrong)} of {flat.size} outputs wrong, the first at {first}: "
        text += f"{float(flat[first]):.7g}, expected {middle:.7g}"
        return text + (f"; {missing} are NaN or were never written" if missing else "")
