"""Floating-point numbers of eight bits: OCP's two formats, and those of CDNA3 (FNUZ), which have no negative zero.

Sources: OCP 8-bit Floating Point Specification 1.0, tables 1 and 2; AMD's Instinct MI300 ISA guide, whose formats have
a bias that is larger by one, no infinity, and one NaN, where negative zero would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SIGN = 0x80
_CODES = 256


@dataclass(frozen=True)
class Float8:
    """A format: sign, exponent and mantissa from the upper bit to the lowest.

    Args:
        mantissa_bits: so many; the exponent has the rest of seven.
        bias: of the exponent. The exponent 0 is of denormal numbers, which have that of the least normal ones.
        greatest: the code of the greatest number; positive codes above it are no numbers.
        overflow: the code of what is too large, without its sign.
        nan: a code of NaN.
    """

    mantissa_bits: int
    bias: int
    greatest: int
    overflow: int
    nan: int

    @property
    def least_normal(self) -> float:
        """The least positive number at full precision."""
        return 2.0 ** (1 - self.bias)

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """The number of every code."""
        return np.array([self._value(code) for code in range(_CODES)], np.float32)

    def encode(self, numbers: Array) -> NDArray[np.uint8]:
        """Codes of the nearest numbers, of two the even one; what is too large becomes infinite or NaN."""
        magnitudes = np.abs(numbers)
        is_finite = np.isfinite(magnitudes)
        finite = np.where(is_finite, magnitudes, 0)
        least = 1 - self.bias
        exponents = np.where(finite < self.least_normal, least, np.frexp(finite)[1] - 1)
        steps = np.rint(np.ldexp(finite, self.mantissa_bits - exponents)).astype(np.int64)
        # A mantissa that is rounded up to the next power of two carries into the exponent.
        codes = ((exponents.astype(np.int64) + (self.bias - 1)) << self.mantissa_bits) + steps
        codes = np.where(is_finite & (codes <= self.greatest), codes, self.overflow)
        is_negative = np.signbit(numbers) & ((codes != 0) | (self.nan != _SIGN))
        signed = np.where(is_negative, codes | _SIGN, codes)
        return np.where(np.isnan(numbers), self.nan, signed).astype(np.uint8)

    def decode(self, codes: Array) -> NDArray[np.float32]:
        """The numbers of codes."""
        numbers: NDArray[np.float32] = self.values[codes]
        return numbers

    def _value(self, code: int) -> float:
        magnitude = code & ~_SIGN
        sign = -1.0 if code & _SIGN else 1.0
        if code == self.nan or (magnitude > self.greatest and magnitude != self.overflow):
            return nan
        if magnitude > self.greatest:
            return nan if self.overflow == self.nan else sign * inf
        exponent, mantissa = divmod(magnitude, 1 << self.mantissa_bits)
        if exponent:
            mantissa += 1 << self.mantissa_bits
        return sign * mantissa * 2.0 ** (max(exponent, 1) - self.bias - self.mantissa_bits)


E4M3 = Float8(mantissa_bits=3, bias=7, greatest=0x7E, overflow=0x7F, nan=0x7F)
E5M2 = Float8(mantissa_bits=2, bias=15, greatest=0x7B, overflow=0x7C, nan=0x7E)
E4M3_FNUZ = Float8(mantissa_bits=3, bias=8, greatest=0x7F, overflow=_SIGN, nan=_SIGN)
E5M2_FNUZ = Float8(mantissa_bits=2, bias=16, greatest=0x7F, overflow=_SIGN, nan=_SIGN)
