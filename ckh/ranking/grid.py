"""Columns over problems, variant classes and tiles: every quantity is computed on the axes it depends on alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.features.engine import Array, Columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.features.engine import FeatureEngine


@dataclass(frozen=True, slots=True)
class Source:
    """Columns along one axis, or over some, of the grid.

    Attributes:
        columns: the columns themselves.
        avoids: a quantity that reads any of these raw columns is not for this source.
        shape: what an array of this source is reshaped to, so as to broadcast over the grid; None: it does already.
    """

    columns: Columns
    avoids: frozenset[str]
    shape: tuple[int, ...] | None

    def placed(self, values: Array) -> Array:
        """An array along the source's axis, as one that broadcasts over the grid."""
        return values if self.shape is None else np.asarray(values).reshape(self.shape)


class GridColumns(Columns):
    """Columns over a grid, each taken from the first source that may have it.

    Args:
        engine: the engine that reads them.
        reads: raw columns behind each quantity.
        sources: where quantities come from that do not depend on the whole grid.
    """

    def __init__(self, engine: FeatureEngine, reads: Mapping[str, frozenset[str]], sources: Sequence[Source]) -> None:
        super().__init__({}, engine.derived, engine.defaults)
        self._reads = reads
        self._sources = sources

    def _find(self, name: str) -> Array:
        source = self._source(self._reads[name])
        return self._derived[name](self) if source is None else source.placed(source.columns[name])

    def raw(self, name: str) -> Array:
        """A given column as it is, placed in the grid."""
        source = self._source(frozenset((name,)))
        assert source is not None, "every raw column is along one axis"
        return source.placed(source.columns.raw(name))

    def codes(self, name: str, table: Mapping[str, float], otherwise: float) -> Array:
        """A text column as numbers, placed in the grid."""
        source = self._source(frozenset((name,)))
        assert source is not None, "every raw column is along one axis"
        return source.placed(source.columns.codes(name, table, otherwise))

    def _source(self, reads: frozenset[str]) -> Source | None:
        return next((source for source in self._sources if source.avoids.isdisjoint(reads)), None)
