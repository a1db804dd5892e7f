"""A pool of candidates, prepared once for many problems: dependencies of each feature, and values that never change.

Features that depend on no kernel column are one number per problem. The others are rows over the distinct tiles: one
row if they depend on the tile only, or one for each class of variants that differ in the other columns they depend on;
if they depend on the variant only, a row over the distinct variants. Rows independent of the problem are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import DataError
from ckh.features.engine import Columns, columns_read
from ckh.ranking.axes import Use, coded, keys, split
from ckh.ranking.symbolic import SymbolicColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import Array, Feature, FeatureEngine
    from ckh.ranking.axes import Keys
    from ckh.ranking.symbolic import Symbol

    Floats = NDArray[np.float64]
    Arrays = Mapping[str, Array]
    Axis = tuple[Columns, frozenset[str], tuple[int, ...]]

_OF_TILES, _OF_CLASSES = (-1,), (-1, 1)


class _GridColumns(SymbolicColumns):
    """Columns over classes of variants and tiles, and symbols; columns of one axis are computed along it only."""

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
        array = self._along(self._reads[name], lambda columns: columns[name])
        return super()._find(name) if array is None else array

    def raw(self, name: str) -> Array:
        """Return a raw column along its axis."""
        array = self._along(frozenset((name,)), lambda columns: columns.raw(name))
        return super().raw(name) if array is None else array

    def codes(self, name: str, table: Mapping[str, float], otherwise: float) -> Array:
        """Encode a string column as numbers, along its axis."""
        array = self._along(frozenset((name,)), lambda columns: columns.codes(name, table, otherwise))
        return super().codes(name, table, otherwise) if array is None else array

    def _along(self, reads: frozenset[str], compute: Callable[[Columns], Array]) -> Array | None:
        """Compute a value along the axis that has all its columns; None if there is none."""
        for columns, absent, shape in self._axes:
            if reads.isdisjoint(absent):
                return np.asarray(compute(columns)).reshape(shape)
        return None


class Kind(IntEnum):
    """Axes along which a feature's value varies within a pool."""

    CONSTANT = 0
    TILE = 1
    VARIANT = 2
    MIXED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Location of a feature's values."""

    feature: int
    kind: Kind
    is_dynamic: bool
    row: int
    rows: int
    partition: int


class Pool:
    """Candidates for a problem, and their features."""

    def __init__(
        self,
        engine: FeatureEngine,
        names: Sequence[str],
        hardware: Arrays,
        kernels: Arrays,
        example: Arrays,
        nodes: NDArray[np.int64],
    ) -> None:
        self._engine = engine
        self._hardware = {f"hw_{name}": value for name, value in hardware.items()}
        used = [int(index) for index in np.flatnonzero(nodes)]
        self.features = engine.select([names[index] for index in used])
        candidates = max((len(np.atleast_1d(column)) for column in kernels.values()), default=0)
        if not candidates:
            raise DataError("a pool needs candidates", code="empty")
        columns = {name: np.broadcast_to(np.atleast_1d(column), candidates) for name, column in kernels.items()}
        first_row = {**example, **{name: column[:1] for name, column in columns.items()}, **self._hardware}
        every, self._reads = columns_read(engine, self.features, first_row)
        self._needed = frozenset(example) - frozenset(kernels)
        self.numbers = sorted(self._needed & frozenset[str]().union(*every))
        uses = [
            Use(reads & frozenset(kernels), int(nodes[index]), not reads.isdisjoint(self._needed))
            for index, reads in zip(used, every, strict=True)
        ]
        by_tile, by_variant, codes = self._take_apart(uses, columns, candidates)
        self._kernel_names = frozenset(kernels)
        self._of_tile = self._columns({name: columns[name][by_tile.first] for name in self._tile_names})
        held = {name: column[by_variant.first] for name, column in columns.items()}
        self._classes: dict[frozenset[str], tuple[int, Columns]] = {}
        partitions: list[NDArray[np.intp]] = []
        for use in uses:
            outside = use.reads - self._tile_names
            if outside and (use.is_dynamic or use.reads & self._tile_names) and outside not in self._classes:
                chosen = keys([codes[name][by_variant.first] for name in sorted(outside)], self.variants)
                of_class = {name: held[name][chosen.first] for name in outside}
                self._classes[outside] = len(partitions), self._columns(of_class)
                partitions.append(chosen.of)
        self.partitions = np.array(partitions, np.intp).reshape(len(partitions), self.variants)
        rows = self._place(used, uses)
        self.variant_rows = np.empty((rows[Kind.VARIANT, False], self.variants))
        self.static_rows = np.empty((rows[Kind.TILE, False], self.tiles))
        self._fill(held)

    def columns(self, symbols: Mapping[str, Symbol]) -> Iterator[tuple[Feature, Placed, Columns]]:
        """Yield the features that are constants or depend on the problem, with the columns to compute them from."""
        grids = {place.partition: self._grid(place.partition, symbols) for place in self.placed}
        alone = SymbolicColumns(symbols, self._hardware, self._engine.derived, self._engine.defaults)
        for feature, place in zip(self.features, self.placed, strict=True):
            if place.kind == Kind.CONSTANT:
                yield feature, place, alone
            elif place.is_dynamic:
                yield feature, place, grids[place.partition]

    def _take_apart(
        self, uses: Sequence[Use], columns: Arrays, candidates: int
    ) -> tuple[Keys, Keys, dict[str, NDArray[np.int64]]]:
        """Find the distinct tiles and variants, and encode the columns."""
        read = frozenset[str]().union(*(use.reads for use in uses))
        codes = {name: coded(column) for name, column in columns.items() if name in read}
        self._tile_names = split(codes, uses, candidates)
        by_tile = keys([codes[name] for name in sorted(self._tile_names)], candidates)
        by_variant = keys([codes[name] for name in sorted(read - self._tile_names)], candidates)
        self.tile_of, self.variant_of = by_tile.of, by_variant.of
        self.tiles, self.variants = len(by_tile.first), len(by_variant.first)
        return by_tile, by_variant, codes

    def _columns(self, given: Arrays) -> Columns:
        return Columns({**given, **self._hardware}, self._engine.derived, self._engine.defaults)

    def _grid(self, partition: int, symbols: Mapping[str, Symbol]) -> Columns:
        """Columns over the tiles and, if there is a partition, its classes."""
        of_tile = self._of_tile, self._needed | (self._kernel_names - self._tile_names), _OF_TILES
        of_class = [
            (columns, self._needed | (self._kernel_names - names), _OF_CLASSES)
            for names, (number, columns) in self._classes.items()
            if number == partition
        ]
        return _GridColumns(symbols, [of_tile, *of_class], self._reads, self._engine.derived, self._engine.defaults)

    def _place(self, used: Sequence[int], uses: Sequence[Use]) -> dict[tuple[Kind, bool], int]:
        """Assign locations to features; returns the number of rows of each kind, counting mixed rows as tile rows."""
        rows = {(kind, is_dynamic): 0 for kind in Kind for is_dynamic in (False, True)}
        self.placed: list[Placed] = []
        for index, use in zip(used, uses, strict=True):
            outside = use.reads - self._tile_names
            partition, count = -1, 1
            if not use.reads:
                kind, table = Kind.CONSTANT, (Kind.CONSTANT, False)
            elif not outside:
                kind, table = Kind.TILE, (Kind.TILE, use.is_dynamic)
            elif outside in self._classes and (use.is_dynamic or use.reads & self._tile_names):
                kind, table = Kind.MIXED, (Kind.TILE, use.is_dynamic)
                partition = self._classes[outside][0]
                count = int(self.partitions[partition].max()) + 1
            else:
                kind, table = Kind.VARIANT, (Kind.VARIANT, False)
            self.placed.append(Placed(index, kind, use.is_dynamic, rows[table], count, partition))
            rows[table] += count
        return rows

    def _fill(self, of_variant: Arrays) -> None:
        """Compute the values independent of the problem."""
        by_variant = self._columns(of_variant)
        grids: dict[int, Columns] = {}
        for feature, place in zip(self.features, self.placed, strict=True):
            if place.kind == Kind.VARIANT:
                self.variant_rows[place.row] = feature.formula(by_variant)
            elif place.kind != Kind.CONSTANT and not place.is_dynamic:
                if place.partition not in grids:
                    grids[place.partition] = self._grid(place.partition, {})
                rows = self.static_rows[place.row : place.row + place.rows]
                rows[:] = feature.formula(grids[place.partition])
