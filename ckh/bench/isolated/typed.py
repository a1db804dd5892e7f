"""Element types of tensors: storage, and conversion to and from it.

NumPy has no bfloat16: it is stored as the upper half of a float32, in uint16. 8-bit numbers are stored as codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


Array = NDArray[Any]

_SIGN = 0x80
_CODES = 256


@dataclass(frozen=True)
class Float8:
    """An 8-bit floating-point format: sign, exponent and mantissa from the highest bit to the lowest.

    Formats are OCP's two, and those of CDNA3 (FNUZ), whose bias is larger by one, which have no infinity, and a single
    NaN in place of negative zero. Sources: OCP 8-bit Floating Point Specification 1.0, tables 1 and 2; AMD's Instinct
    MI300 ISA guide.
    """

    mantissa_bits: int
    """Number of mantissa bits; the exponent has the rest of seven."""
    bias: int
    """Exponent bias. Exponent 0 encodes denormal numbers, with the exponent of the smallest normal ones."""
    greatest: int
    """Code of the largest number; positive codes above it are not numbers."""
    overflow: int
    """Code of values that are too large, without sign."""
    nan: int
    """A code of NaN."""

    @property
    def least_normal(self) -> float:
        """Smallest positive normal number."""
        return 2.0 ** (1 - self.bias)

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """Numbers of all codes."""
        return np.array([self._value(code) for code in range(_CODES)], np.float32)

    def encode(self, numbers: Array) -> NDArray[np.uint8]:
        """Codes of the nearest numbers, ties to even; overflow becomes infinite or NaN."""
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
        """Numbers of codes."""
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


NAN_BYTE = 0xFF  # all bytes of a floating-point NaN
_FAR_BYTE = 0x80  # all bytes of a 32-bit integer far from all sums of up to 2^16 products of int8

_BF16_SHIFT = 16
_BF16_HALF = np.uint32(0x7FFF)  # just under half of the maximum of a float32's lower bits
_INFINITY_32 = np.uint32(0x7F800000)
_MAGNITUDE_32 = np.uint32(0x7FFFFFFF)
_BF16_QUIET = np.uint16(0x0040)


@dataclass(frozen=True, slots=True)
class ElementType:
    """Storage and conversion of an element type."""

    storage: np.dtype[Any]
    """NumPy dtype of the array that stores it."""
    least_normal: float
    """Smallest positive normal number."""
    rounding: float
    """Maximum relative change of rounding to nearest; truncation, twice as much."""
    rounded: Callable[[Array], Array]
    """From floating point to the nearest number, ties to even; overflow is infinite."""
    truncated: Callable[[Array], Array] | None
    """Towards zero; None: no kernel does that."""
    widened: Callable[[Array], Array]
    """Exact conversion to float32; of 32-bit integers to float64."""
    scale: float = 1.0
    """Factor from uniform numbers in -1 to 1 to operands."""
    unwritten_byte: int = NAN_BYTE
    """Fill byte of a result before a kernel writes it; no right result consists of it."""

    @property
    def is_exact(self) -> bool:
        """True if sums of products are exact, as those of integers are."""
        return self.storage.kind == "i"

    @property
    def bound(self) -> np.dtype[Any]:
        """NumPy dtype of widened values."""
        return np.dtype(np.float64 if self.is_exact and self.storage.itemsize > 1 else np.float32)

    @property
    def unwritten(self) -> float:
        """Widened value of a result before a kernel writes it."""
        bytes_ = np.full(self.storage.itemsize, self.unwritten_byte, np.uint8)
        return float(self.widened(bytes_.view(self.storage))[0])

    def lowest(self, values: Array) -> Array:
        """Smallest value that a kernel may store for each value, widened; denormals may be flushed to zero."""
        made = self._made(values, np.minimum)
        if self.least_normal:
            made[(made > 0) & (made < self.least_normal)] = 0
        return made

    def highest(self, values: Array) -> Array:
        """Largest value that a kernel may store for each value, widened."""
        made = self._made(values, np.maximum)
        if self.least_normal:
            made[(made < 0) & (made > -self.least_normal)] = 0
        return made

    def _made(self, values: Array, choose: Callable[[Array, Array], Array]) -> Array:
        nearest = self.widened(self.rounded(values))
        return nearest if self.truncated is None else choose(nearest, self.widened(self.truncated(values)))

    def operand(self, values: NDArray[np.float32]) -> Array:
        """Kernel inputs from numbers in -1 to 1: scaled and rounded.

        Denormals are set to zero, since the matrix units of CDNA2 flush them. (PyTorch, Numerical accuracy: "the FP16
        and BF16 V_DOT2 and MFMA matrix instructions flush input and output denormal values to zero".)
        """
        if not self.least_normal:
            return self.rounded(values if self.scale == 1 else values * np.float32(self.scale))
        return self.rounded(np.where(np.abs(values) < self.least_normal, np.float32(0), values))


def element_type(dtype: str, *, fnuz_floats: bool = False) -> ElementType:
    """Element type of a dtype; with `fnuz_floats` its 8-bit numbers are encoded as on CDNA3, else as by OCP."""
    types = _TYPES | (_FNUZ_TYPES if fnuz_floats else {})
    if dtype not in types:
        raise UsageError(f"kernels of {dtype} cannot be measured", "one of " + ", ".join(types), code="unknown-dtype")
    return types[dtype]


def _to_floats(storage: type[np.floating[Any]]) -> Callable[[Array], Array]:
    def convert(values: Array) -> Array:
        with np.errstate(over="ignore"):
            return values.astype(storage, copy=False)

    return convert


_to_float32 = _to_floats(np.float32)


def _to_bf16(values: Array) -> Array:
    """Round to nearest even by adding just under half a unit, and the last bit that is kept.

    Rounding float64 values to float32 first cannot move a value across a float32 that a kernel may compute.
    """
    bits = _float32_bits(values)
    last = (bits >> np.uint32(_BF16_SHIFT)) & np.uint32(1)
    # For NaN, the addition may carry into the sign, or leave only bits that are truncated.
    made: Array = ((bits + _BF16_HALF + last) >> np.uint32(_BF16_SHIFT)).astype(np.uint16)
    is_nan = (bits & _MAGNITUDE_32) > _INFINITY_32
    return np.where(is_nan, _bf16_bits(bits) | _BF16_QUIET, made) if is_nan.any() else made


def _float32_bits(values: Array) -> NDArray[np.uint32]:
    return np.ascontiguousarray(_to_float32(values)).view(np.uint32)


def _bf16_bits(bits: Array) -> Array:
    upper: NDArray[np.uint16] = (bits >> np.uint32(_BF16_SHIFT)).astype(np.uint16)
    return upper


def _from_bf16(stored: Array) -> NDArray[np.float32]:
    widened: NDArray[np.float32] = (stored.astype(np.uint32) << np.uint32(_BF16_SHIFT)).view(np.float32)
    return widened


def _to_integers(storage: type[np.signedinteger[Any]]) -> Callable[[Array], Array]:
    limits = np.iinfo(storage)
    return lambda values: np.clip(np.rint(values), limits.min, limits.max).astype(storage)


def _float8_type(encoding: Float8) -> ElementType:
    rounding = 2.0 ** -(encoding.mantissa_bits + 1)
    return ElementType(np.dtype(np.uint8), encoding.least_normal, rounding, encoding.encode, None, encoding.decode)


_TYPES = {
    "fp32": ElementType(np.dtype(np.float32), 0.0, 2.0**-24, _to_float32, None, _to_float32),
    "fp16": ElementType(np.dtype(np.float16), 2.0**-14, 2.0**-11, _to_floats(np.float16), None, _to_float32),
    # CK Tile truncates unless configured otherwise (CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT in its config.hpp).
    "bf16": ElementType(
        np.dtype(np.uint16), 2.0**-126, 2.0**-8, _to_bf16, lambda values: _bf16_bits(_float32_bits(values)), _from_bf16
    ),
    "fp8": _float8_type(E4M3),
    "bf8": _float8_type(E5M2),
    "int8": ElementType(np.dtype(np.int8), 0.0, 0.0, _to_integers(np.int8), None, _to_float32, scale=127.0),
    "int32": ElementType(
        np.dtype(np.int32), 0.0, 0.0, _to_integers(np.int32), None, _to_floats(np.float64), unwritten_byte=_FAR_BYTE
    ),
}
_FNUZ_TYPES = {"fp8": _float8_type(E4M3_FNUZ), "bf8": _float8_type(E5M2_FNUZ)}
