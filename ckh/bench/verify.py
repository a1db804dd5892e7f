"""Whether a kernel's result is right.

Every element must lie within `tolerance * sum |a||b|` of the float64 reference, where the sum runs over the element's
products. That is the norm in which rounding errors are bounded whatever cancels: n products summed in any order err by
at most n * 2^-24 of it (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and in practice, partial sums
being blocked and errors random, by a few 2^-24. We allow `2^-24 * (16 + sqrt(n))`: far above what right kernels do, and
below 1/n, what one forgotten product amounts to, for all n up to some ten thousand. An element without products must
be exactly zero. The bound itself is summed in float32: its terms are positive, so it is good to n * 2^-24.

Kernels of floating-point dtypes multiply rounded inputs and sum in float32; the reference is computed from the same
rounded inputs. What comes out is then made a number of the result's dtype, which is monotonic, so the least and the
greatest right sum become the least and the greatest right result:

- fp32: the sums themselves.
- fp16, in which products of fp8 and bf8 come out too: rounded to nearest, that is half a unit in the last place (2^-11
  of the value) more on either side.
- bf16: rounded to nearest or cut off, whichever is further away: up to one unit (2^-7) towards zero, half a unit away
  from it. CK Tile does either.

For fp16 and bf16, results below the least normal number may also be zero: matrix units flush them. One forgotten
product is found there if it is larger than about a unit in the last place of its sum: nearly always for fp16, and for
bf16 in sums of up to some hundred. In longer ones it can hide in one large element; a kernel that forgets it in many
elements is found out by those that are small.

Products of int8 are summed in int32, which is exact: a result is right if it is the reference.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.bench.computation import computation_of
from ckh.bench.typed import element_type

if TYPE_CHECKING:
    from ckh.ops.base import Problem

Array = NDArray[Any]

FP32_ROUNDING = 2.0**-24
_CHUNK = 1 << 16


def tolerance(problem: Problem) -> float:
    """The allowed error before rounding to the dtype, relative to the sum of an element's products' magnitudes."""
    return FP32_ROUNDING * (16 + sqrt(computation_of(problem).reduction_length(problem)))


class Limits:
    """The least and the greatest right value of every element of a result, in float32 for a quick comparison.

    Args:
        problem: its dtype says how operands and result are stored.
        a, b: the operands as kernels get them.
        fnuz_floats: how those of eight bits are encoded (`typed.element_type`).
    """

    def __init__(self, problem: Problem, a: Array, b: Array, *, fnuz_floats: bool = False) -> None:
        computation = computation_of(problem)
        self._element = element_type(computation.result_dtype(problem))
        operand = element_type(problem.dtype, fnuz_floats=fnuz_floats)
        a, b = operand.widened(a), operand.widened(b)
        compute = computation.compute
        exact = compute(problem, a.astype(np.float64), b.astype(np.float64)).reshape(-1)
        if self._element.is_exact:
            self._low = self._high = exact
            return
        margin = compute(problem, np.abs(a), np.abs(b)).reshape(-1).astype(np.float64)
        margin *= tolerance(problem)
        self._low = self._element.lowest(exact - margin)
        self._high = self._element.highest(exact + margin)

    def complaint(self, result: Array) -> str:
        """What is wrong with a result as it is stored; empty if nothing is. NaN is never right."""
        stored = result.reshape(-1)
        for start in range(0, stored.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            values = self._element.widened(stored[part])
            if not ((values >= self._low[part]) & (values <= self._high[part])).all():
                return self._describe(self._element.widened(stored))
        return ""

    def _describe(self, flat: Array) -> str:
        wrong = ~((flat >= self._low) & (flat <= self._high))
        first = int(np.argmax(wrong))
        missing = int(np.count_nonzero(np.isnan(flat) | (flat == self._element.unwritten)))
        middle = (float(self._low[first]) + float(self._high[first])) / 2
        text = f"{np.count_nonzero(wrong)} of {flat.size} outputs wrong, the first at {first}: "
        text += f"{float(flat[first]):.7g}, expected {middle:.7g}"
        return text + (f"; {missing} are NaN or were never written" if missing else "")
