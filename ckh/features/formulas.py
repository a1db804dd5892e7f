"""Formulas that features of several operations share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.features.engine import Columns

    Formula = Callable[[Columns], Any]


def raw(name: str) -> Formula:
    """A column or quantity, unchanged."""
    return lambda c: c[name]


def log2_of(name: str) -> Formula:
    """Base-2 logarithm of a quantity, which is raised to at least 1."""
    return lambda c: np.log2(np.maximum(c[name], 1))


def product(*names: str) -> Formula:
    """The product of quantities."""

    def formula(c: Columns) -> Any:
        value = c[names[0]]
        for name in names[1:]:
            value = value * c[name]
        return value

    return formula


def ratio(above: str, below: str) -> Formula:
    """Quotient of quantities; the divisor is raised to at least 1."""
    return lambda c: c[above] / np.maximum(c[below], 1)


def pieces(size: str, piece: str) -> Formula:
    """Number of pieces that cover a size."""
    return lambda c: np.ceil(c[size] / np.maximum(c[piece], 1))


def fill(size: str, piece: str) -> Formula:
    """Utilization of whole pieces by a size."""
    return lambda c: c[size] / (np.ceil(c[size] / np.maximum(c[piece], 1)) * np.maximum(c[piece], 1))


def remainder(size: str, piece: str) -> Formula:
    """Part of a size beyond whole pieces."""
    return lambda c: np.mod(c[size], np.maximum(c[piece], 1))
