"""Verification of a kernel's result.

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

A kernel that splits K into n parts and adds them up in the result's own type, by atomic operations in any order, rounds
2n - 1 times: each part when it becomes a number of that type, and each sum of two. What it rounds are sums X_j of an
element's products; rounding to nearest errs by at most u |X_j| each time, u being half a unit in the last place of 1.

- No sum of products exceeds A = sum |a||b|, so the error is at most (2n - 1) u A (Higham, 4.2), whatever happens.
- It is far less, since errors go both ways: independent and of mean zero, they add up as a random walk does (Higham and
  Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019). Our operands have
  random signs, so the sums are a random walk, too, and given the result R, where it ends, the k-th is k/n R in the
  mean, with a variance of k/n (1 - k/n) V, V = sum (ab)^2 (a Brownian bridge). All X_j^2 together are at most
  (n + 6)/6 (V + 2 R^2) in the mean. A rounding's own deviation being 0.42 u, that of the error is 0.17 u
  sqrt((n + 6) (V + 2 R^2)).
  The limit is u sqrt(n + 6) (2.5 S + 1.6 |R|): 20 times that in the middle, and 7 times where R is far from it. It is
  that wide because the walk's extent is random as well. S^2 = A max|a| max|b| is at least V, which is 4/9 of it for
  uniform operands, and needs no third reference.
- Cutting off, as CK Tile does with bf16, moves every sum towards zero, by u |X_j| on average. The X_j add up to
  (n + 3)/2 R in the mean, with a deviation of n sqrt(V/12). So R (1 - u (n + 3)/2) is as right as R, and the limit is
  wider by 1.4 u n S, which is seven such deviations.
- Units that flush numbers below the least normal one can lose that much each time.

A part has a deviation of sqrt(V/n). One that is missing, or there twice, in a workgroup's tile shows in some of its
elements, up to some hundred parts of fp16, and 32 of bf16. With many parts an element may be so far off that even zero
can be right; but not many of them: the root mean square of the elements' errors is at most a tenth of what each may
have, so for more than 8 parts (fewer are not that many independent errors) it must not be above 0.12, and 8/sqrt(size)
of that more for chance. That finds a part that is missing everywhere, up to 64 parts of bf16. Parts that are added in
float32, be it the type of the result or that of a second stage's workspace, are sums in float32 like all others, and
need none of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.bench.computation import Split, computation_of
from ckh.bench.isolated.typed import element_type

if TYPE_CHECKING:
    from ckh.ops.base import Problem

Array = NDArray[Any]

FP32_ROUNDING = 2.0**-24
_CHUNK = 1 << 16
_WHOLE = Split()
# The limits of rounded parts in units of u: factors of sqrt(n + 6) S, of sqrt(n + 6) |R|, and of n S for cutting off.
_PER_PRODUCTS, _PER_SUM, _PER_CUT = 2.5, 1.6, 1.4
# Above how many parts all errors are judged together, and their root mean square then, relative to the limits.
_FEW_PARTS = 8
_MOST_TOGETHER = 0.12
_CHANCE = 8.0


def tolerance(problem: Problem) -> float:
    """Tolerance before rounding to the dtype, relative to the sum of magnitudes of an element's products."""
    return FP32_ROUNDING * (16 + sqrt(computation_of(problem).reduction_length(problem)))


@dataclass(frozen=True, slots=True, eq=False)
class _Range:
    """Lower and upper bounds of right values, in float32 for a fast comparison."""

    low: Array
    high: Array

    def holds(self, values: Array, part: slice) -> Array:
        """True if all values of a part are within bounds; False for NaN."""
        within: Array = (values >= self.low[part]) & (values <= self.high[part])
        return within

    def together(self, values: Array) -> float:
        """Root mean square distance from the middle of the range, relative to its half width."""
        half = (self.high - self.low) / 2
        off = np.divide(values - (self.low + half), half, out=np.zeros_like(half), where=half > 0)
        return sqrt(float(np.mean(np.square(off, dtype=np.float64))))


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums for the limits of split sums, of every element in float32: the sum and that of magnitudes, A.

    `peak` is max|a| max|b|, the largest that a product can be.
    """

    exact: Array
    magnitude: Array
    peak: float


class Limits:
    """Limits of right results: lower and upper bounds of every element.

    Args:
        problem: its dtype says how operands and result are stored.
        a, b: the operands as kernels get them, of random signs.
        fnuz_floats: how those of eight bits are encoded (`typed.element_type`).
    """

    def __init__(self, problem: Problem, a: Array, b: Array, *, fnuz_floats: bool = False) -> None:
        computation = computation_of(problem)
        self._element = element_type(computation.result_dtype(problem))
        operand = element_type(problem.dtype, fnuz_floats=fnuz_floats)
        a, b = operand.widened(a), operand.widened(b)
        compute = computation.compute
        exact = compute(problem, a.astype(np.float64), b.astype(np.float64)).reshape(-1)
        self._split, self._sums = _WHOLE, None
        if self._element.is_exact:
            self._range = _Range(exact, exact)
            return
        magnitude = compute(problem, np.abs(a), np.abs(b)).reshape(-1)
        self._tolerance = tolerance(problem)
        margin = magnitude.astype(np.float64) * self._tolerance
        self._range = self._rounded(exact - margin, exact + margin)
        if self._element.rounding > FP32_ROUNDING:
            peak = float(np.max(np.abs(a), initial=0)) * float(np.max(np.abs(b), initial=0))
            self._sums = _Sums(exact.astype(np.float32), magnitude, peak)

    def complaint(self, result: Array, split: Split = _WHOLE) -> str:
        """Complaint about a stored result; empty if right. NaN is never right.

        Args:
            result: what a kernel wrote.
            split: how that kernel splits the sums.
        """
        stored, right = result.reshape(-1), self._range_of(split)
        for start in range(0, stored.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            if not right.holds(self._element.widened(stored[part]), part).all():
                return self._describe(self._element.widened(stored), right)
        if right is not self._range and split.parts > _FEW_PARTS and stored.size:
            most = _MOST_TOGETHER * (1 + _CHANCE / sqrt(stored.size))
            if (found := right.together(self._element.widened(stored))) > most:
                return f"all outputs together are wrong: {found:.3f} of what each may err in the mean, not {most:.3f}"
        return ""

    def error(self, result: Array, split: Split = _WHOLE) -> float:
        """Largest error of an element, relative to the largest right value; 0 for exact dtypes."""
        right = self._range_of(split)
        middle = (right.low.astype(np.float64) + right.high) / 2
        off = np.abs(self._element.widened(result.reshape(-1)) - middle)
        largest = float(np.max(np.abs(middle), initial=0.0))
        return float(np.max(off, initial=0.0)) / largest if largest else 0.0

    def _rounded(self, low: Array, high: Array) -> _Range:
        return _Range(self._element.lowest(low), self._element.highest(high))

    def _range_of(self, split: Split) -> _Range:
        """Range for kernels that split sums like this, with the last one cached."""
        if split.parts == 1 or split.in_fp32 or self._sums is None:
            return self._range
        if split != self._split:
            self._split, self._split_range = split, self._of_parts(split.parts, self._sums)
        return self._split_range

    def _of_parts(self, parts: int, sums: _Sums) -> _Range:
        """Range of sums of rounded parts, as derived in the module's docstring."""
        unit, is_cut, roundings = self._element.rounding, self._element.truncated is not None, 2 * parts - 1
        size = np.sqrt(sums.magnitude * np.float32(sums.peak))
        both_ways = sqrt(parts + 6)
        likely = (both_ways * _PER_PRODUCTS + is_cut * parts * _PER_CUT) * size
        likely += both_ways * _PER_SUM * np.abs(sums.exact)
        margin = np.minimum(likely, roundings * (1 + is_cut) * sums.magnitude)
        margin *= unit
        margin += sums.magnitude * np.float32(self._tolerance)
        margin += (sums.magnitude > 0) * np.float32(roundings * self._element.least_normal)
        kept = max(0.0, 1 - unit * (parts + 3) / 2) if is_cut else 1.0
        shifted = sums.exact * np.float32(kept)
        return self._rounded(np.minimum(sums.exact, shifted) - margin, np.maximum(sums.exact, shifted) + margin)

    def _describe(self, flat: Array, right: _Range) -> str:
        wrong = ~right.holds(flat, slice(None))
        first = int(np.argmax(wrong))
        missing = int(np.count_nonzero(np.isnan(flat) | (flat == self._element.unwritten)))
        middle = (float(right.low[first]) + float(right.high[first])) / 2
        text = f"{np.count_nonzero(wrong)} of {flat.size} outputs wrong, the first at {first}: "
        text += f"{float(flat[first]):.7g}, expected {middle:.7g}"
        return text + (f"; {missing} are NaN or were never written" if missing else "")
