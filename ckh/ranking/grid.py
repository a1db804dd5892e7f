"""Columns over classes of variants and tiles: what depends on one of them alone is computed along that axis alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.ranking.symbolic import SymbolicColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ckh.features.engine import Array, Columns
    from ckh.ranking.symbolic import Symbol

    Axis = tuple[Columns, frozenset[str], tuple[int, ...]]

OF_TILES, OF_CLASSES = (-1,), (-1, 1)


class GridColumns(SymbolicColumns):
    """Columns over a grid, and symbols.

    Args:
        symbols: the problem's sizes by column.
        axes: columns of one axis, the raw columns that they cannot be computed without, and how they lie in the grid.
        reads: raw columns behind each quantity.
        derived: formulas of intermediate quantities, by name.
        defaults: values of raw columns that may be missing.
    """

    def __init__(
        self,
        symbols: Mapping[str, Symbol],
        axes: Sequence[Axis],
        reads: Mapping[str, frozenset[str]],
        derived: Mapping[str, Callable[[Columns], Array]],
        defaults: Mapping[str, float | str],
    ) -> None:
        super().__init__(symbols, {}, derived, defaults)
        self._axes = axes
        self._reads = reads

    def _find(self, name: str) -> Array:
        found = self._along(self._reads[name], lambda columns: columns[name])
        return super()._find(name) if found is None else found

    def raw(self, name: str) -> Array:
        """A given column as it is, along its axis."""
        found = self._along(frozenset((name,)), lambda columns: columns.raw(name))
        return super().raw(name) if found is None else found

    def codes(self, name: str, table: Mapping[str, float], otherwise: float) -> Array:
        """A text column as numbers, along its axis."""
        found = self._along(frozenset((name,)), lambda columns: columns.codes(name, table, otherwise))
        return super().codes(name, table, otherwise) if found is None else found

    def _along(self, reads: frozenset[str], compute: Callable[[Columns], Array]) -> Array | None:
        """The value computed along the axis that has all columns; None if none does."""
        for columns, others, shape in self._axes:
            if reads.isdisjoint(others):
                return np.asarray(compute(columns)).reshape(shape)
        return None
