"""Floating-point numbers of 8 bits or fewer by definition, independent of the emulator's conversions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class SmallFloat:
    """A format: bits of exponent and mantissa, bias, and the patterns of NaN and infinity."""

    exponent: int
    mantissa: int
    bias: int
    is_fnuz: bool = False
    nan: bool = False
    infinity: bool = False

    def table(self) -> Array:
        """The value of every pattern, as float64."""
        count = 1 << (1 + self.exponent + self.mantissa)
        return np.array([self._value(bits) for bits in range(count)])

    def _value(self, bits: int) -> float:
        half = 1 << (self.exponent + self.mantissa)
        sign, rest = -1.0 if bits >= half else 1.0, bits % half
        exponent, fraction = rest >> self.mantissa, rest % (1 << self.mantissa)
        is_top = exponent == (1 << self.exponent) - 1
        if self.is_fnuz and bits == half:
            return np.nan
        if self.infinity and is_top:
            return np.nan if fraction else sign * np.inf
        if self.nan and not self.is_fnuz and is_top and fraction == (1 << self.mantissa) - 1:
            return np.nan
        unit = 2.0 ** (max(exponent, 1) - self.bias - self.mantissa)
        return sign * unit * (fraction + ((1 << self.mantissa) if exponent else 0))


FNUZ = {
    "fp8": SmallFloat(4, 3, 8, is_fnuz=True, nan=True),
    "bf8": SmallFloat(5, 2, 16, is_fnuz=True, nan=True),
}
OCP = {
    "fp8": SmallFloat(4, 3, 7, nan=True),
    "bf8": SmallFloat(5, 2, 15, nan=True, infinity=True),
    "fp6": SmallFloat(2, 3, 1),
    "bf6": SmallFloat(3, 2, 3),
    "fp4": SmallFloat(2, 1, 1),
}


def nearest(values: Array, table: Array) -> Array:
    """The pattern of the nearest finite value of each number in range, ties to even."""
    result = []
    for value in values.tolist():
        distance = np.abs(table - value)
        distance[~np.isfinite(distance)] = np.inf
        ties = np.flatnonzero(distance == distance.min())
        same_sign = [int(tie) for tie in ties if (tie >= len(table) // 2) == np.signbit(value)] or [int(ties[0])]
        result.append(next((item for item in same_sign if not item & 1), same_sign[0]))
    return np.array(result)
