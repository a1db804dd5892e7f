"""A pool of candidates, prepared once for many problems: what each feature depends on, and how to compute just that.

Features that no kernel column enters are one number a problem. The others are rows over the distinct tiles: one row if
only the tile enters, one for each class of variants that its other columns tell apart if those enter too; or, if only
the variant enters, a row over the distinct variants. Rows that no problem enters are computed here, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import DataError
from ckh.features.engine import Columns
from ckh.ranking.axes import Keys, Use, coded, keys, split
from ckh.ranking.grid import GridColumns, Source
from ckh.ranking.symbolic import SymbolicColumns
from ckh.ranking.tracing import trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import Array, Feature, FeatureEngine
    from ckh.ranking.symbolic import Symbol

    Floats = NDArray[np.float64]
    Reads = Mapping[str, frozenset[str]]


class Kind(IntEnum):
    """What a feature's value differs by, within a pool."""

    CONSTANT = 0
    TILE = 1
    VARIANT = 2
    MIXED = 3


_BY_TILE = frozenset({Kind.TILE, Kind.MIXED})


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Where the values of a feature are.

    Attributes:
        feature: its number among the engine's inputs.
        kind: what it differs by.
        is_dynamic: whether the problem enters, so that the rows come anew with each.
        row: its first row among the constants, tile rows (static or dynamic ones), or variant rows.
        rows: how many it has; several only if mixed: one for each class.
        partition: which partition of the variants tells its classes; -1 if it is not mixed.
    """

    feature: int
    kind: Kind
    is_dynamic: bool
    row: int
    rows: int
    partition: int


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """What features depend on the problem for.

    Attributes:
        constants: shape (problems, constants).
        rows: shape (problems, dynamic rows, tiles).
    """

    constants: Floats
    rows: Floats


class Pool:
    """Candidates for a problem, and their features.

    Args:
        engine: the features.
        names: the model's inputs, in order.
        hardware: the hardware profile by name.
        kernels: the candidates' columns, of one row for each; one row in all stands for all.
        example: the columns of any problem, of one row.
        nodes: how many nodes test each input; features that none tests are never computed.

    Attributes:
        placed: where the features are that are used.
        tile_of: the tile of each candidate; shape (candidates,).
        variant_of: the variant of each candidate; shape (candidates,).
        tiles: number of distinct tiles.
        variants: number of distinct variants.
        static_rows: what no problem enters, by tile; shape (static rows, tiles).
        variant_rows: the same by variant; shape (variant rows, variants).
        partitions: the class of each variant, for each partition; shape (partitions, variants).

    Raises:
        DataError: a column that a feature needs is missing.
        ModelError: the engine lacks an input.
    """

    def __init__(
        self,
        engine: FeatureEngine,
        names: Sequence[str],
        hardware: Mapping[str, Array],
        kernels: Mapping[str, Array],
        example: Mapping[str, Array],
        nodes: NDArray[np.int64],
    ) -> None:
        self._engine = engine
        self._hardware = {f"hw_{name}": value for name, value in hardware.items()}
        self._used = [int(index) for index in np.flatnonzero(nodes)]
        self._features = engine.select([names[index] for index in self._used])
        self._needed = frozenset(example) - frozenset(kernels)
        self._needed_in_order = sorted(self._needed)
        candidates = max((len(np.atleast_1d(column)) for column in kernels.values()), default=0)
        if not candidates:
            raise DataError("a pool needs candidates")
        columns = {name: np.broadcast_to(np.atleast_1d(column), candidates) for name, column in kernels.items()}
        one = {**example, **{name: column[:1] for name, column in columns.items()}, **self._hardware}
        every, self._reads = trace(engine, self._features, one)
        uses = [
            Use(reads & frozenset(kernels), int(nodes[index]), not reads.isdisjoint(self._needed))
            for index, reads in zip(self._used, every, strict=True)
        ]
        read = frozenset[str]().union(*(use.reads for use in uses))
        codes = {name: coded(column) for name, column in columns.items() if name in read}
        tile = split(codes, uses, candidates)
        by_tile = keys([codes[name] for name in sorted(tile)], candidates)
        by_variant = keys([codes[name] for name in sorted(read - tile)], candidates)
        self.tile_of, self.variant_of = by_tile.of, by_variant.of
        self.tiles, self.variants = len(by_tile.first), len(by_variant.first)
        self._kernel_columns = frozenset(kernels)
        self._tile_names, self._variant_names = tile, frozenset(kernels) - tile
        self._tile_columns = self._columns({name: column[by_tile.first] for name, column in columns.items()})
        self._classes: dict[frozenset[str], tuple[int, Columns]] = {}
        partitions: list[NDArray[np.intp]] = []
        for use in uses:
            outside = use.reads - tile
            if outside and (use.is_dynamic or use.reads & tile) and outside not in self._classes:
                chosen = keys([codes[name][by_variant.first] for name in sorted(outside)], self.variants)
                held = {name: column[by_variant.first][chosen.first] for name, column in columns.items()}
                self._classes[outside] = len(partitions), self._columns(held)
                partitions.append(chosen.of)
        self.partitions = np.array(partitions, np.intp).reshape(len(partitions), self.variants)
        self._place(uses)
        self._fill(Keys(by_variant.first, by_variant.of), columns)

    @property
    def cells(self) -> int:
        """How many values a problem takes."""
        return self._row_counts[0, False] + self._rows(is_dynamic=True) * self.tiles

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that are used."""
        return self._features

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of what problems enter: constants, rows over tiles, tiles."""
        return self._row_counts[0, False], self._rows(is_dynamic=True), self.tiles

    def given(self, problems: Mapping[str, Array]) -> dict[str, Array]:
        """The columns that features read, in a fixed order.

        Raises:
            DataError: one is missing.
        """
        missing = sorted(self._needed.difference(problems))
        if missing:
            raise DataError(f"the features need a column {missing[0]!r}")
        return {name: np.atleast_1d(problems[name]) for name in self._needed_in_order}

    def values(self, problems: Mapping[str, Array], count: int) -> Values:
        """The features that problems enter.

        Args:
            problems: raw columns, of one row for each problem; one row in all stands for all.
            count: number of problems.

        Raises:
            DataError: a column is missing.
        """
        constants, rows, tiles = self.shape
        values = Values(np.empty((count, constants)), np.empty((count, rows, tiles)))
        self.fill(values, self.given(problems), range(len(self.placed)))
        return values

    def fill(self, values: Values, given: Mapping[str, Array], chosen: Iterable[int]) -> None:
        """Compute some features that problems enter, by their number in `placed`, into their places."""
        columns = self._columns(given)
        dynamic = []
        for index in chosen:
            place = self.placed[index]
            if place.kind == Kind.CONSTANT:
                values.constants[:, place.row] = self._features[index].formula(columns)
            elif place.is_dynamic:
                dynamic.append(index)
        self._compute(values.rows, Source(columns, self._kernel_columns, (-1, 1, 1)), dynamic)

    def symbolic(self, numbers: Mapping[str, Symbol], texts: Mapping[str, Array]) -> Iterator[tuple[int, Columns]]:
        """The features that problems enter, by their number in `placed`, and the columns to compute each from.

        Args:
            numbers: a problem's numbers.
            texts: its other columns.
        """
        given = {**texts, **self._hardware}
        columns = SymbolicColumns(numbers, given, self._engine.derived, self._engine.defaults)
        grids = self._by_partition(Source(columns, self._kernel_columns, None))
        for index, place in enumerate(self.placed):
            if place.kind == Kind.CONSTANT:
                yield index, columns
            elif place.is_dynamic:
                yield index, grids[place.partition]

    def _columns(self, given: Mapping[str, Array]) -> Columns:
        return Columns({**given, **self._hardware}, self._engine.derived, self._engine.defaults)

    def _place(self, uses: Sequence[Use]) -> None:
        rows = dict.fromkeys(((kind, dynamic) for kind in range(3) for dynamic in (False, True)), 0)
        self.placed: list[Placed] = []
        for index, use in zip(self._used, uses, strict=True):
            outside = use.reads - self._tile_names
            partition, count = -1, 1
            if not use.reads:
                kind, table = Kind.CONSTANT, (0, False)
            elif not outside:
                kind, table = Kind.TILE, (1, use.is_dynamic)
            elif outside in self._classes and (use.is_dynamic or use.reads & self._tile_names):
                kind, table = Kind.MIXED, (1, use.is_dynamic)
                partition = self._classes[outside][0]
                count = int(self.partitions[partition].max()) + 1
            else:
                kind, table = Kind.VARIANT, (2, False)
            self.placed.append(Placed(index, kind, use.is_dynamic, rows[table], count, partition))
            rows[table] += count
        self._row_counts = rows

    def _rows(self, *, is_dynamic: bool) -> int:
        return self._row_counts[1, is_dynamic]

    def _fill(self, variants: Keys, columns: Mapping[str, Array]) -> None:
        """Compute what no problem enters."""
        self.variant_rows = np.empty((self._row_counts[2, False], self.variants))
        by_variant = self._columns({name: column[variants.first] for name, column in columns.items()})
        for feature, place in zip(self._features, self.placed, strict=True):
            if place.kind == Kind.VARIANT:
                self.variant_rows[place.row] = feature.formula(by_variant)
        static = np.empty((1, self._rows(is_dynamic=False), self.tiles))
        chosen = [i for i, place in enumerate(self.placed) if place.kind in _BY_TILE and not place.is_dynamic]
        self._compute(static, Source(self._columns({}), self._kernel_columns, (-1, 1, 1)), chosen)
        self.static_rows = static[0]

    def _compute(self, rows: Floats, problems: Source, chosen: Iterable[int]) -> None:
        """Compute tile rows, shape (problems, rows, tiles); mixed ones have a row for each class."""
        grids = self._by_partition(problems)
        for index in chosen:
            place = self.placed[index]
            rows[:, place.row : place.row + place.rows] = self._features[index].formula(grids[place.partition])

    def _by_partition(self, problems: Source) -> dict[int, Columns]:
        """Columns over problems and tiles, and over the classes of each partition as well."""
        of_tile = Source(self._tile_columns, self._needed | self._variant_names, (-1,))
        pure = GridColumns(self._engine, self._reads, [problems, of_tile])
        shared = Source(pure, self._variant_names, None)
        grids: dict[int, Columns] = {-1: pure}
        for partition, columns in self._classes.values():
            of_class = Source(columns, self._needed | self._tile_names, (-1, 1))
            grids[partition] = GridColumns(self._engine, self._reads, [problems, of_tile, of_class, shared])
        return grids
