"""Operands in memory: the elements that are stored, and the tensors that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ckh.bench.computation import Role
from ckh.bench.isolated.typed import element_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.bench.computation import Operand, Shape
    from ckh.bench.isolated.typed import Array, ElementType


def stored_shape(operand: Operand) -> Shape:
    """Shape of the array that holds an operand's elements: its own if it is dense, else one axis."""
    if operand.strides is None or 0 in operand.shape:
        return operand.shape
    return (1 + sum((size - 1) * stride for size, stride in zip(operand.shape, operand.strides, strict=True)),)


def tensor_of(operand: Operand, stored: Array) -> Array:
    """View of the stored elements as the operand's tensor."""
    if operand.strides is None or 0 in operand.shape:
        return stored
    return as_strided(stored, operand.shape, [stride * stored.itemsize for stride in operand.strides])


def gaps_of(operand: Operand) -> NDArray[np.bool_]:
    """Mask of the stored elements that do not belong to the tensor; empty if it is dense."""
    if operand.strides is None:
        return np.zeros(0, bool)
    mask = np.ones(stored_shape(operand), bool)
    tensor_of(operand, mask)[...] = False
    return mask


def overwritten(operand: Operand, stored: Array, element: ElementType) -> int:
    """Number of elements between the rows of a result that are not as they were before the kernel wrote."""
    between = stored[gaps_of(operand)] if operand.strides is not None else stored[:0]
    bits = np.dtype(f"u{between.itemsize}")
    return int(np.count_nonzero(between.view(bits) != _unwritten(element, 1).view(bits)))


def drawn(operand: Operand, random: np.random.Generator, *, fnuz_floats: bool) -> Array:
    """Stored elements of a random operand: from -1 to 1, scales from 1/2 to 2."""
    element = element_type(operand.dtype, fnuz_floats=fnuz_floats)
    values = random.random(stored_shape(operand), dtype=np.float32)
    values *= 2.0
    values -= 1.0
    if operand.role is Role.SCALE:
        values = np.exp2(values)
    stored = element.operand(values)
    if operand.strides is not None:
        gaps = gaps_of(operand)
        stored[gaps] = _unwritten(element, 1)
    return stored


def laid_out(operand: Operand, values: Array, *, fnuz_floats: bool) -> Array:
    """Stored elements of a dense tensor of the operand's shape."""
    if operand.strides is None:
        return values
    element = element_type(operand.dtype, fnuz_floats=fnuz_floats)
    (size,) = stored_shape(operand)
    stored = _unwritten(element, size)
    tensor_of(operand, stored)[...] = values
    return stored


def _unwritten(element: ElementType, size: int) -> Array:
    """Elements with the bits of a result before a kernel writes it, NaN for floating-point types."""
    return np.full(size * element.storage.itemsize, element.unwritten_byte, np.uint8).view(element.storage)
