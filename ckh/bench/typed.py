"""The element types of tensors: how they are stored, and rounding to and from them.

NumPy has no bfloat16: it is kept as the upper half of a float32, in uint16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[Any]

NAN_BYTE = 0xFF  # a number of any of these types, all of whose bytes are this, is NaN

_BF16_SHIFT = 16
_BF16_HALF = np.uint32(0x7FFF)  # just under half of what the lower bits of a float32 can be
_SIGNS_16 = np.uint16(0x8000)
_INFINITY_32 = np.uint32(0x7F800000)
_MAGNITUDE_32 = np.uint32(0x7FFFFFFF)
_BF16_QUIET = np.uint16(0x0040)


@dataclass(frozen=True, slots=True)
class ElementType:
    """How numbers of a type are stored and made.

    Args:
        storage: NumPy's type of the array that holds them.
        least_normal: the least positive number at full precision.
        rounded: to the nearest number, of two the even one, from floating point; what is too large is infinite.
        truncated: to the nearest number towards zero; None: kernels never do that.
        widened: exactly to float32.
    """

    storage: np.dtype[Any]
    least_normal: float
    rounded: Callable[[Array], Array]
    truncated: Callable[[Array], Array] | None
    widened: Callable[[Array], NDArray[np.float32]]

    def lowest(self, values: Array) -> NDArray[np.float32]:
        """The least that a kernel makes of each value, as float32; what is below the normal numbers may become zero."""
        made = self._made(values, np.minimum)
        if self.least_normal:
            made[(made > 0) & (made < self.least_normal)] = 0
        return made

    def highest(self, values: Array) -> NDArray[np.float32]:
        """The greatest that a kernel makes of each value, as float32."""
        made = self._made(values, np.maximum)
        if self.least_normal:
            made[(made < 0) & (made > -self.least_normal)] = 0
        return made

    def _made(self, values: Array, choose: Callable[[Array, Array], Array]) -> NDArray[np.float32]:
        nearest = self.widened(self.rounded(values))
        return nearest if self.truncated is None else choose(nearest, self.widened(self.truncated(values)))

    def operand(self, values: NDArray[np.float32]) -> Array:
        """Inputs of a kernel: rounded, and zero below the normal numbers, since the matrix units of CDNA2 flush those.

        (PyTorch, Numerical accuracy: "the FP16 and BF16 V_DOT2 and MFMA matrix instructions flush input and output
        denormal values to zero".)
        """
        if not self.least_normal:
            return self.rounded(values)
        return self.rounded(np.where(np.abs(values) < self.least_normal, np.float32(0), values))


def element_type(dtype: str) -> ElementType:
    """The type of a problem's dtype.

    Raises:
        UsageError: kernels of that dtype cannot be measured.
    """
    if dtype not in _TYPES:
        raise UsageError(f"kernels of {dtype} cannot be measured", "one of " + ", ".join(_TYPES))
    return _TYPES[dtype]


def _to_float32(values: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False)


def _to_float16(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float16, copy=False)


def _to_bf16(values: Array) -> Array:
    """Rounded by adding just under half a unit, and the last bit that stays, so that halves go to even.

    Rounding to float32 before, where values are float64, cannot move a value across a float32 that a kernel may sum to.
    """
    bits = np.ascontiguousarray(_to_float32(values)).view(np.uint32)
    last = (bits >> np.uint32(_BF16_SHIFT)) & np.uint32(1)
    # Of a NaN the sum may carry into the sign, or leave only bits that are cut off.
    made: Array = ((bits + _BF16_HALF + last) >> np.uint32(_BF16_SHIFT)).astype(np.uint16)
    is_nan = (bits & _MAGNITUDE_32) > _INFINITY_32
    return np.where(is_nan, _bf16_bits(bits) | _BF16_QUIET, made) if is_nan.any() else made


def _cut_to_bf16(values: Array) -> Array:
    bits = np.ascontiguousarray(_to_float32(values)).view(np.uint32)
    return _bf16_bits(bits)


def _bf16_bits(bits: Array) -> Array:
    upper: NDArray[np.uint16] = (bits >> np.uint32(_BF16_SHIFT)).astype(np.uint16)
    return upper


def _from_bf16(stored: Array) -> NDArray[np.float32]:
    widened: NDArray[np.float32] = (stored.astype(np.uint32) << np.uint32(_BF16_SHIFT)).view(np.float32)
    return widened


_TYPES = {
    "fp32": ElementType(np.dtype(np.float32), 0.0, _to_float32, None, _to_float32),
    "fp16": ElementType(np.dtype(np.float16), 2.0**-14, _to_float16, None, _to_float32),
    # CK Tile cuts the lower bits off unless it is told otherwise (CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT in its config.hpp).
    "bf16": ElementType(np.dtype(np.uint16), 2.0**-126, _to_bf16, _cut_to_bf16, _from_bf16),
}
