"""Numbers of 8-bit floating-point formats, by their definition."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

# Bits of the exponent, its bias, and the codes that are not finite numbers.
DEFINED: dict[str, tuple[int, int, dict[int, float]]] = {
    "E4M3": (4, 7, {0x7F: nan, 0xFF: nan}),
    "E5M2": (5, 15, {0x7C: inf, 0xFC: -inf, **dict.fromkeys((0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF), nan)}),
    "E4M3_FNUZ": (4, 8, {0x80: nan}),
    "E5M2_FNUZ": (5, 16, {0x80: nan}),
}


def defined(name: str) -> list[float]:
    """Numbers of all codes, from their bits: sign, exponent, mantissa."""
    width, bias, others = DEFINED[name]
    numbers = []
    for code in range(256):
        bits = f"{code:08b}"
        exponent, mantissa = int(bits[1 : 1 + width], 2), Fraction(int(bits[1 + width :], 2), 2 ** (7 - width))
        power = Fraction(2) ** ((exponent or 1) - bias)
        number = float((mantissa + (exponent > 0)) * power)
        numbers.append(others.get(code, -number if bits[0] == "1" else number))
    return numbers
