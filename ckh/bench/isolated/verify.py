"""Verification of a kernel's result.

Every element must lie within `tolerance * sum |a||b|` of the float64 reference, where the sum runs over the element's
products. Rounding errors are bounded in this norm whatever cancels: n products summed in any order err by at most n *
2^-24 of it (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and in practice, with blocked partial sums
and random errors, by a few 2^-24. The tolerance is `2^-24 * (16 + sqrt(n))`: far above the errors of right kernels, and
below 1/n, the effect of one missing product, for all n up to some ten thousand. An element without products must be
exactly zero. The bound itself is summed in float32: its terms are positive, so its relative error is at most n * 2^-24.

Kernels of floating-point dtypes multiply rounded inputs and sum in float32; the reference is computed from the same
rounded inputs. The sum is then converted to the result's dtype. As conversion is monotonic, the limits of right sums
are converted to the limits of right results:

- fp32: no conversion.
- fp16, also the result of fp8 and bf8: rounded to nearest, i.e. another half unit in the last place (2^-11 of the
  value) on either side.
- bf16: rounded to nearest or truncated, whichever is further away: up to one unit (2^-7) towards zero, half a unit away
  from it. CK Tile does either.

For fp16 and bf16, results below the smallest normal number may also be zero, as matrix units flush them. One missing
product is detected if it is larger than about a unit in the last place of its sum: nearly always for fp16, and for bf16
in sums of up to some hundred. In longer sums it may vanish in a single large element; a kernel that omits it in many
elements is detected by the small ones.

Products of int8 are summed in int32, which is exact: a result is right if it equals the reference.

Scales are factors of the products, so that they are in the reference and in the sums of magnitudes. An epilogue follows
the sums: an operation states how it maps the bounds of a sum, and its biases, to the bounds of a result
(`Computation.finish`), which are rounded like those of sums.

A kernel that splits K into n parts and adds these in the result's own dtype, by atomic operations in any order, rounds
2n - 1 times: each part when it is converted, and each sum of two. What it rounds are sums X_j of an element's products;
rounding to nearest errs by at most u |X_j| each time, u being half a unit in the last place of 1.

- No sum of products exceeds A = sum |a||b|, so the error is at most (2n - 1) u A (Higham, 4.2) in any case.
- The typical error is far smaller: independent errors of mean zero add up as a random walk (Higham and Mary, A New
  Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019). ckh's operands have random signs,
  so the sums are a random walk, too, and given its end, the result R, the k-th has a mean of k/n R and a variance of
  k/n (1 - k/n) V, V = sum (ab)^2 (a Brownian bridge). The expected sum of all X_j^2 is at most (n + 6)/6 (V + 2 R^2).
  As the standard deviation of a single rounding is 0.42 u, that of the error is 0.17 u sqrt((n + 6) (V + 2 R^2)).
  The limit is u sqrt(n + 6) (2.5 S + 1.6 |R|): 20 standard deviations for small R, and 7 for large R. It is that wide
  because the extent of the walk is random as well. S^2 = A max|a| max|b| is at least V, which is 4/9 of it for
  uniform operands, and needs no third reference.
- Truncation, as in CK Tile's conversion to bf16, moves every sum towards zero, by u |X_j| on average. The sum of the
  X_j has a mean of (n + 3)/2 R and a standard deviation of n sqrt(V/12). So R (1 - u (n + 3)/2) is as right as R, and
  the limit is wider by 1.4 u n S, which is seven such standard deviations.
- Units that flush numbers below the smallest normal one can lose that much each time.

A part has a standard deviation of sqrt(V/n). A missing or duplicate part of a workgroup's tile is detected in some of
its elements, up to some hundred parts of fp16, and 32 of bf16. With many parts the limits of a single element may even
include zero; but many elements cannot be that far off: the root mean square of the elements' errors is at most a tenth
of their limits, so for more than 8 parts (fewer are not enough independent errors) it must not exceed 0.12, plus
8/sqrt(size) of that for chance. That detects a part that is missing everywhere, up to 64 parts of bf16. Parts that are
added in float32, whether as the dtype of the result or in a second stage's workspace, are float32 sums like any other,
and need none of this. Nor do gradients of weights, which are held to the limits of float32 sums however they are added.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import isnan, prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.bench.computation import Role, Split, computation_of
from ckh.bench.isolated.typed import element_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.computation import Shape
    from ckh.ops.base import Problem

Array = NDArray[Any]

FP32_ROUNDING, FP64_ROUNDING = 2.0**-24, 2.0**-53
_SAMPLES, _MOST_SAMPLED = 256, 1 << 26  # elements of a GPU's sums that the host computes, and their products
_CHUNK = 1 << 16
_WHOLE = Split()
# Limits of rounded parts in units of u: factors of sqrt(n + 6) S, of sqrt(n + 6) |R|, and of n S for truncation.
_PER_PRODUCTS, _PER_SUM, _PER_CUT = 2.5, 1.6, 1.4
# Number of parts above which all errors are also checked together, and their maximum root mean square then, relative to
# the limits.
_FEW_PARTS = 8
_MOST_TOGETHER = 0.12
_CHANCE = 8.0


def tolerance(problem: Problem) -> float:
    """Tolerance before rounding to the dtype, relative to the sum of magnitudes of an element's products."""
    return FP32_ROUNDING * (16 + sqrt(computation_of(problem).reduction_length(problem)))


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Lower and upper bounds of right values, in float32 for a fast comparison; both NaN where NaN is right."""

    low: Array
    high: Array

    def holds(self, values: Array, part: slice) -> Array:
        """Mask of the values of a part within bounds; NaN is where the bounds are NaN, too."""
        low, high = self.low[part], self.high[part]
        within: Array = (values >= low) & (values <= high)
        if not within.all():
            within |= np.isnan(values) & np.isnan(low) & np.isnan(high)
        return within

    def together(self, values: Array) -> float:
        """Root mean square distance from the center of the range, relative to its half width."""
        half = (self.high - self.low) / 2
        off = np.divide(values - (self.low + half), half, out=np.zeros_like(half), where=half > 0)
        return sqrt(float(np.mean(np.square(off, dtype=np.float64))))


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of the products of each element of a result, flat."""

    exact: Array
    """The sums, in float64."""
    magnitude: Array
    """The sums of magnitudes, in float32; of integers, which need none, the sums."""


def host_sums(problem: Problem, *inputs: Array, fnuz_floats: bool = False) -> Sums:
    """Return a problem's sums, computed on the host."""
    computation = computation_of(problem)
    factors = _widened(problem, inputs, fnuz_floats=fnuz_floats)
    with np.errstate(invalid="ignore"):  # of infinities in the operands
        exact = computation.compute(problem, *(values.astype(np.float64) for values in factors)).reshape(-1)
        if element_type(computation.operands_of(problem)[1].dtype).is_exact:
            return Sums(exact, exact)
        return Sums(exact, computation.compute(problem, *map(np.abs, factors)).reshape(-1))


def wrong_sums(problem: Problem, sums: Sums, *inputs: Array, fnuz_floats: bool) -> str:
    """Reason why sums are not a problem's, by elements that the host computes in float64; empty if they agree."""
    computation = computation_of(problem)
    operands, result = computation.operands_of(problem)
    length, shape = computation.reduction_length(problem), result.shape
    elements = [element_type(operand.dtype, fnuz_floats=fnuz_floats) for operand in operands]
    assert computation.factors is not None
    for place in _samples(shape, zlib.crc32(problem.canonical().encode()), length):
        factors = computation.factors(problem, place, *inputs[:2])
        x, y = (element.widened(values).astype(np.float64) for element, values in zip(elements, factors, strict=False))
        flat, right, magnitude = np.ravel_multi_index(place, shape), np.sum(x * y), np.sum(np.abs(x * y))
        exact, bound = float(sums.exact[flat]), float(sums.magnitude[flat])
        agrees = _agree(exact, right, 2 * length * FP64_ROUNDING * magnitude)
        if not (agrees and _agree(bound, magnitude, (length + 2) * FP32_ROUNDING * magnitude)):
            where = f"at {flat} of {sums.exact.size}"
            return (
                f"{where}, it is {exact:.17g} (of magnitudes {bound:.9g}), {right:.17g} ({magnitude:.9g}) on the host"
            )
    return ""


def _agree(value: float, right: float, allowed: float) -> bool:
    return value == right or abs(value - right) <= allowed or (isnan(value) and isnan(right))


def _samples(shape: Shape, seed: int, length: int) -> Iterator[Shape]:
    """Yield the corners of a result, and elements drawn at random, half of them at an edge.

    They are 256 elements; fewer if their sums are so long that the host would take seconds.
    """
    random, corners = np.random.default_rng(seed), list(product(*(sorted({0, size - 1}) for size in shape)))
    count = min(_SAMPLES, max(_MOST_SAMPLED // length, len(corners)))
    places = random.integers(0, shape, (count, len(shape)))
    edges = np.arange(count // 2)
    axes = edges % len(shape)
    places[edges, axes] = np.where(edges // len(shape) % 2, np.array(shape)[axes] - 1, 0)
    yield from corners
    yield from map(tuple, places[: count - len(corners)].tolist())


def _widened(problem: Problem, inputs: Sequence[Array], *, biases: bool = False, fnuz_floats: bool) -> list[Array]:
    """Factors of a problem's products, or its biases, in float32."""
    operands, _ = computation_of(problem).operands_of(problem)
    return [
        element_type(operand.dtype, fnuz_floats=fnuz_floats).widened(values)
        for operand, values in zip(operands, inputs, strict=True)
        if (operand.role is Role.BIAS) == biases
    ]


def _around(exact: Array, margin: Array) -> tuple[Array, Array]:
    """Return bounds of values; infinities and NaN are their own bounds."""
    margin = np.where(np.isfinite(exact), margin, 0)
    return exact - margin, exact + margin


class Limits:
    """Limits of right results: lower and upper bounds of every element."""

    def __init__(self, problem: Problem, *inputs: Array, fnuz_floats: bool = False, sums: Sums | None = None) -> None:
        """Compute the limits from sums, by default those of the host."""
        finish, (_, result) = computation_of(problem).finish, computation_of(problem).operands_of(problem)
        self._element = element_type(result.dtype, fnuz_floats=fnuz_floats)
        self._factors = partial(_widened, problem, inputs, fnuz_floats=fnuz_floats)
        sums = host_sums(problem, *inputs, fnuz_floats=fnuz_floats) if sums is None else sums
        self._split, self._sums = _WHOLE, None
        if self._element.is_exact:
            self._range = Range(sums.exact, sums.exact)
            return
        self._tolerance = tolerance(problem)
        low, high = _around(sums.exact, sums.magnitude.astype(np.float64) * self._tolerance)
        if finish is not None:
            low, high = finish(problem, (low, high), [bias.astype(np.float64) for bias in self._factors(biases=True)])
        self._range = self._rounded(low, high)
        if finish is None and self._element.rounding > FP32_ROUNDING:
            self._sums = Sums(sums.exact.astype(np.float32), sums.magnitude)

    @cached_property
    def _peak(self) -> float:
        """max|a| max|b|, the largest possible product."""
        return prod(float(np.max(np.abs(a), initial=0, where=np.isfinite(a))) for a in self._factors())

    def complaint(self, result: Array, split: Split = _WHOLE) -> str:
        """Reason why a stored result is wrong; empty if right. NaN is right only where the reference is NaN."""
        stored, right = result.reshape(-1), self.range_of(split)
        for start in range(0, stored.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            if not right.holds(self._element.widened(stored[part]), part).all():
                return self._describe(self._element.widened(stored), right)
        if self.judges_together(split) and stored.size:
            most = _MOST_TOGETHER * (1 + _CHANCE / sqrt(stored.size))
            if (outcome := right.together(self._element.widened(stored))) > most:
                return f"the outputs' mean error is {outcome:.3f} of their limits, above {most:.3f}"
        return ""

    def error(self, result: Array, split: Split = _WHOLE) -> float:
        """Largest error of an element, relative to the largest right value; 0 for exact dtypes."""
        right = self.range_of(split)
        middle = (right.low.astype(np.float64) + right.high) / 2
        off = np.abs(self._element.widened(result.reshape(-1)) - middle)
        largest = float(np.max(np.abs(middle), initial=0.0))
        return float(np.max(off, initial=0.0)) / largest if largest else 0.0

    def judges_together(self, split: Split) -> bool:
        """True if all elements of a result are also judged together, for kernels that split sums in this way."""
        return split.parts > _FEW_PARTS and self.range_of(split) is not self._range

    def range_of(self, split: Split) -> Range:
        """Range for kernels that split sums in this way; the last one is cached."""
        if split.parts == 1 or split.in_fp32 or self._sums is None:
            return self._range
        if split != self._split:
            self._split, self._split_range = split, self._of_parts(split.parts, self._sums)
        return self._split_range

    def _rounded(self, low: Array, high: Array) -> Range:
        return Range(self._element.lowest(low), self._element.highest(high))

    def _of_parts(self, parts: int, sums: Sums) -> Range:
        """Range of sums of rounded parts, as derived in the module's docstring."""
        unit, is_cut, roundings = self._element.rounding, self._element.truncated is not None, 2 * parts - 1
        size = np.sqrt(sums.magnitude * np.float32(self._peak))
        both_ways = sqrt(parts + 6)
        likely = (both_ways * _PER_PRODUCTS + is_cut * parts * _PER_CUT) * size
        likely += both_ways * _PER_SUM * np.abs(sums.exact)
        margin = np.minimum(likely, roundings * (1 + is_cut) * sums.magnitude)
        margin *= unit
        margin += sums.magnitude * np.float32(self._tolerance)
        margin += (sums.magnitude > 0) * np.float32(roundings * self._element.least_normal)
        kept = max(0.0, 1 - unit * (parts + 3) / 2) if is_cut else 1.0
        low, high = _around(sums.exact, margin)
        cut_low, cut_high = _around(sums.exact * np.float32(kept), margin)
        return self._rounded(np.minimum(low, cut_low), np.maximum(high, cut_high))

    def _describe(self, flat: Array, right: Range) -> str:
        wrong = ~right.holds(flat, slice(None))
        first = int(np.argmax(wrong))
        missing = int(np.count_nonzero(wrong & (np.isnan(flat) | (flat == self._element.unwritten))))
        middle = (float(right.low[first]) + float(right.high[first])) / 2
        text = f"{np.count_nonzero(wrong)} of {flat.size} outputs wrong, the first at {first}: "
        text += f"{float(flat[first]):.7g}, expected {middle:.7g}"
        return text + (f"; {missing} are NaN or were never written" if missing else "")
