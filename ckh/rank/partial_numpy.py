"""Partial evaluation in NumPy: every tree walks down at once, with the tiles and variants that are still together.

A state is a node, a bit set of tiles and one of variants. A test that the problem decides moves it on, any other may
split it in two. At the leaves, values are added up by tile and set of variants, and handed on to the variants of the
sets. Sums are exact: leaf values are integers, taken apart into pieces so small that floating point adds them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.rank.families import as_masks, holds
from ckh.rank.pool import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.rank.plan import Block, Plan
    from ckh.rank.pool import Values

    Ints = NDArray[np.intp]
    Words = NDArray[np.uint64]

_RIGHT, _LEFT, _TILE, _VARIANT, _MIXED = range(5)  # what becomes of a state at a test
_LEAVES = 1 << 16  # states that wait for being added up
_CELLS = 1 << 23  # bits that are spread out at once
_FACTORS = np.cumprod(np.full(64, 0x9E3779B97F4A7C15, np.uint64))  # for hashes of bit sets


@dataclass(frozen=True, slots=True, eq=False)
class _States:
    node: Ints
    tiles: Words
    variants: Words

    def __getitem__(self, chosen: NDArray[np.generic]) -> _States:
        return _States(self.node[chosen], self.tiles[chosen], self.variants[chosen])


def scores(plan: Plan, values: Values, out: NDArray[np.float64]) -> None:
    """Write the score of each candidate for each problem to `out`, shape (problems, candidates)."""
    action = np.full(len(plan.forest.thresholds), _RIGHT, np.int8)
    for (_, _, first, count), kind in zip(plan.forest.families.tolist(), plan.families[:, 0], strict=True):
        action[first : first + count] = {Kind.TILE: _TILE, Kind.VARIANT: _VARIANT, Kind.MIXED: _MIXED}.get(kind, _RIGHT)
    for problem, row in enumerate(out):
        _decide(plan, values.constants[problem], action)
        for block in plan.blocks:
            masks = _masks(plan, block, values.rows[problem, :, block.tiles])
            sums = _walk(plan, block, action, masks)
            row[block.candidates] = plan.forest.to_float(sums[block.tile_of, block.variant_of])


def _decide(plan: Plan, constants: NDArray[np.float64], action: NDArray[np.int8]) -> None:
    for family in np.flatnonzero(plan.families[:, 0] == Kind.CONSTANT):
        _, _, first, count = plan.forest.families[family]
        value = constants[plan.families[family, 1], None]
        action[first : first + count] = holds(plan.forest, int(family), value)[:, 0]


def _masks(plan: Plan, block: Block, rows: NDArray[np.float64]) -> Words:
    dynamic = np.zeros((plan.masks[1] - plan.masks[0], rows.shape[1]), np.bool_)
    for family in np.flatnonzero(plan.families[:, 1] >= 0):
        kind, row, mask, partition = plan.families[family].tolist()
        if kind == Kind.CONSTANT:
            continue
        count = int(plan.forest.families[family, 3])
        at = mask - plan.masks[0]
        classes = 1 if kind == Kind.TILE else int(plan.class_starts[partition + 1] - plan.class_starts[partition])
        for index in range(classes):
            dynamic[at : at + count] = holds(plan.forest, int(family), rows[row + index])
            at += count
    return np.concatenate([block.masks, as_masks(dynamic)])


def _walk(plan: Plan, block: Block, action: NDArray[np.int8], masks: Words) -> NDArray[np.int64]:
    """Sums of leaves, shape (tiles, variants, 2)."""
    tiles = block.tiles.stop - block.tiles.start
    roots = plan.forest.roots.astype(np.intp)
    everything = [as_masks(np.ones((1, count), np.bool_)) for count in (tiles, plan.variants)]
    states = _States(roots, *(np.repeat(full, len(roots), axis=0) for full in everything))
    sums = np.zeros((tiles, plan.variants, 2), np.int64)
    waiting: list[_States] = []
    while len(states.node):
        _skip(plan, action, states.node)
        at_leaf = states.node < 0
        waiting.append(states[at_leaf])
        states = _split(plan, action, masks, states[~at_leaf])
        if sum(len(some.node) for some in waiting) > _LEAVES or not len(states.node):
            _add(plan, waiting, sums)
            waiting = []
    return sums


def _skip(plan: Plan, action: NDArray[np.int8], node: Ints) -> None:
    """Move states on, in place, until they are at a leaf or at a test that the problem does not decide."""
    moving = np.flatnonzero(node >= 0)
    while len(moving):
        at = plan.forest.nodes[node[moving]]
        decided = action[at[:, 0]]
        goes_on = decided <= _LEFT
        moving = moving[goes_on]
        below = np.where(decided == _LEFT, at[:, 1], at[:, 2])[goes_on]
        node[moving] = below
        moving = moving[below >= 0]


def _split(plan: Plan, action: NDArray[np.int8], masks: Words, states: _States) -> _States:
    test = plan.forest.nodes[states.node, 0]
    family = np.searchsorted(plan.forest.families[:, 2], test, side="right") - 1
    index = plan.families[family, 2] + test - plan.forest.families[family, 2]
    kinds = action[test]
    parts = []
    for kind in (_TILE, _VARIANT):
        chosen = np.flatnonzero(kinds == kind)
        parts += _sides(plan, states[chosen], masks if kind == _TILE else plan.variant_masks, index[chosen], kind)
    mixed = np.flatnonzero(kinds == _MIXED)
    if len(mixed):
        parts += _split_mixed(plan, masks, states[mixed], family[mixed], index[mixed])
    return _States(*(np.concatenate([getattr(part, name) for part in parts]) for name in _States.__slots__))


def _split_mixed(plan: Plan, masks: Words, states: _States, family: Ints, index: Ints) -> list[_States]:
    """Split by class of variants, then each class's tiles."""
    parts = []
    partition = plan.families[family, 3]
    for number in np.unique(partition):
        chosen = np.flatnonzero(partition == number)
        some, at = states[chosen], index[chosen]
        step = plan.forest.families[family[chosen], 3]
        for members in plan.class_masks[plan.class_starts[number] : plan.class_starts[number + 1]]:
            variants = some.variants & members
            present = variants.any(axis=1)
            of_class = _States(some.node[present], some.tiles[present], variants[present])
            parts += _sides(plan, of_class, masks, at[present], _TILE)
            at = at + step
    return parts


def _sides(plan: Plan, states: _States, masks: Words, index: Ints, kind: int) -> list[_States]:
    mask = masks[index]
    sides = []
    for child, members in ((1, mask), (2, ~mask)):
        kept = (states.tiles if kind == _TILE else states.variants) & members
        present = np.flatnonzero(kept.any(axis=1))
        node = plan.forest.nodes[states.node[present], child].astype(np.intp)
        if kind == _TILE:
            sides.append(_States(node, kept[present], states.variants[present]))
        else:
            sides.append(_States(node, states.tiles[present], kept[present]))
    return sides


def _add(plan: Plan, waiting: list[_States], sums: NDArray[np.int64]) -> None:
    tiles, variants = sums.shape[:2]
    leaf, of_tiles, of_variants = (np.concatenate([getattr(s, name) for s in waiting]) for name in _States.__slots__)
    high, low = plan.forest.leaves[~leaf].T
    shift = plan.forest.low_bits
    rest = plan.forest.piece_bits - shift  # bits of high parts that go to the lower piece
    pieces = (high >> rest).astype(np.float64), (((high & ((1 << rest) - 1)) << shift) + low).astype(np.float64)
    sets, of_set = _distinct(of_variants)
    spread = _bits(sets, variants).astype(np.float64)
    step = max(_CELLS // tiles, 1)
    for start in range(0, len(leaf), step):
        held = np.flatnonzero(_bits(of_tiles[start : start + step], tiles).ravel())
        state = held // tiles
        cell = held - state * tiles
        state += start
        cell += of_set[state] * tiles
        upper, lower = (_spread(cell, piece[state], spread, tiles) for piece in pieces)
        sums[..., 0] += (upper << rest) + (lower >> shift)
        sums[..., 1] += lower & ((1 << shift) - 1)


def _spread(cell: Ints, values: NDArray[np.float64], spread: NDArray[np.float64], tiles: int) -> NDArray[np.int64]:
    """Sums by set of variants and tile, handed to the variants of the sets; shape (tiles, variants)."""
    by_set = np.bincount(cell, values, minlength=len(spread) * tiles).reshape(-1, tiles)
    exact: NDArray[np.int64] = (by_set.T @ spread).astype(np.int64)
    return exact


def _distinct(masks: Words) -> tuple[Words, Ints]:
    """The distinct rows, and which of them each row is."""
    _, first, of = np.unique(masks @ _FACTORS[: masks.shape[1]], return_index=True, return_inverse=True)
    if np.array_equal(masks[first][of], masks):
        return masks[first], of
    distinct, of = np.unique(masks, axis=0, return_inverse=True)  # two rows have one hash: nearly impossible
    return distinct, of.reshape(-1)


def _bits(words: Words, count: int) -> NDArray[np.bool_]:
    return np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, count=count, bitorder="little").view(np.bool_)
