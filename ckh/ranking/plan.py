"""A forest over a pool: for each family of tests, where its values come from and where its masks are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.ranking.families import as_masks, holds
from ckh.ranking.pool import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ranking.packed import PackedForest
    from ckh.ranking.pool import Placed, Pool

    Int32 = NDArray[np.int32]
    Words = NDArray[np.uint64]

BLOCK = 4096  # tiles that are ranked together; csrc/ckh_fill.c refuses more


@dataclass(frozen=True, slots=True, eq=False)
class TileBlock:
    """Some of the tiles, and the candidates that have them.

    Attributes:
        tiles: which tiles.
        candidates: the candidates, shape (some,).
        tile_of: the tile of each, counted from the block's first.
        variant_of: the variant of each.
        masks: of static tests: the tiles that each holds for, shape (static masks, words).
    """

    tiles: slice
    candidates: NDArray[np.intp]
    tile_of: Int32
    variant_of: Int32
    masks: Words


@dataclass(frozen=True, slots=True, eq=False)
class RankingPlan:
    """How to rank a pool with a forest.

    Attributes:
        forest: the forest.
        variants: number of distinct variants.
        families: of each family: kind, source (column of the constants, or first dynamic row; -1 if static), first
            mask (static ones come before dynamic ones; those of variants are counted apart), and partition; shape
            (families, 4). A mixed family has its masks class by class.
        masks: number of static masks, and of all masks over tiles.
        variant_masks: the variants that each variant test holds for, shape (variant tests, words).
        class_masks: the variants of each class, partition after partition, shape (classes, words).
        class_starts: where the classes of each partition start, shape (partitions + 1,).
        blocks: the tiles, in turn.
    """

    forest: PackedForest
    variants: int
    families: Int32
    masks: tuple[int, int]
    variant_masks: Words
    class_masks: Words
    class_starts: Int32
    blocks: tuple[TileBlock, ...]


def make_plan(forest: PackedForest, pool: Pool) -> RankingPlan:
    """Prepare a pool for a forest."""
    places = {place.feature: place for place in pool.placed}
    of_family = [places[feature] for feature in forest.families[:, 0].tolist()]
    families = np.full((len(of_family), 4), -1, np.int32)
    static = [np.zeros((0, pool.tiles), np.bool_)]
    of_variants = [np.zeros((0, pool.variants), np.bool_)]
    for family, place in enumerate(of_family):
        families[family] = place.kind, _source(place), -1, place.partition
        if place.kind == Kind.VARIANT:
            families[family, 2] = sum(map(len, of_variants))
            of_variants.append(holds(forest, family, pool.variant_rows[place.row]))
        elif place.kind != Kind.CONSTANT and not place.is_dynamic:
            families[family, 2] = sum(map(len, static))
            rows = pool.static_rows[place.row : place.row + place.rows]
            static += [holds(forest, family, row) for row in rows]
    holding = np.concatenate(static)
    count = len(holding)
    for family, place in enumerate(of_family):
        if place.is_dynamic and place.kind in {Kind.TILE, Kind.MIXED}:
            families[family, 2] = count
            count += int(forest.families[family, 3]) * place.rows
    classes = [row == np.arange(row.max() + 1)[:, None] for row in pool.partitions]
    return RankingPlan(
        forest=forest,
        variants=pool.variants,
        families=families,
        masks=(len(holding), count),
        variant_masks=as_masks(np.concatenate(of_variants)),
        class_masks=as_masks(np.concatenate([np.zeros((0, pool.variants), np.bool_), *classes])),
        class_starts=np.cumsum([0, *map(len, classes)], dtype=np.int32),
        blocks=tuple(_block(pool, holding, start) for start in range(0, pool.tiles, BLOCK)),
    )


def _source(place: Placed) -> int:
    return place.row if place.kind == Kind.CONSTANT or place.is_dynamic else -1


def _block(pool: Pool, holding: NDArray[np.bool_], start: int) -> TileBlock:
    stop = min(start + BLOCK, pool.tiles)
    candidates = np.flatnonzero((pool.tile_of >= start) & (pool.tile_of < stop))
    return TileBlock(
        tiles=slice(start, stop),
        candidates=candidates,
        tile_of=(pool.tile_of[candidates] - start).astype(np.int32),
        variant_of=pool.variant_of[candidates].astype(np.int32),
        masks=as_masks(holding[:, start:stop]),
    )
