"""Partial evaluation in NumPy: every tree walks down at once, with the tiles and variants that are still together.

A state is a node, a bit set of tiles and one of variants. A test that the problem decides moves it on, any other may
split it. On the way back up a state takes the value of its largest part, and the tiles and variants of the others get
the difference: most tiles are never touched. Sums are exact: leaf values are integers, taken apart into pieces so
small that floating point adds them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.ranking.families import as_masks, holds, sizes, words_for
from ckh.ranking.pool import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ranking.plan import Block, Plan
    from ckh.ranking.pool import Values

    Ints = NDArray[np.intp]
    Words = NDArray[np.uint64]
    Leaves = NDArray[np.int64]

_RIGHT, _LEFT, _TILE, _VARIANT, _MIXED = range(5)  # what becomes of a state at a test
_WORDS = 1 << 21  # words of bit sets that a group of trees may take, all levels together
_CELLS = 1 << 23  # bits that are spread out at once
_ENTRIES = 1 << 20  # that floating point adds exactly, in pieces
_PIECE = 31  # bits of the lower piece
_FACTORS = np.cumprod(np.full(64, 0x9E3779B97F4A7C15, np.uint64))  # for hashes of bit sets


@dataclass(frozen=True, slots=True, eq=False)
class _States:
    node: Ints
    tiles: Words
    variants: Words

    def take(self, chosen: Ints) -> _States:
        return _States(self.node.take(chosen), self.tiles.take(chosen, 0), self.variants.take(chosen, 0))


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What states are split into.

    Attributes:
        states: the parts.
        largest: of each state that was split: its largest part.
        other: the other parts.
        beside: of each other part: the largest one of the same state.
    """

    states: _States
    largest: Ints
    other: Ints
    beside: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    states: _States
    inner: Ints
    parts: _Parts | None


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """What a walk needs to know.

    Attributes:
        plan: the plan.
        test: the test of each node.
        below: of each node: where to go if the test does not hold, and if it does; shape (2 * nodes,).
        place: of each test: its first mask, the step to that of the next class, and its partition; shape (3, tests).
        action: what becomes of a state at each test.
        masks: the tiles that each test over tiles holds for.
    """

    plan: Plan
    test: Ints
    below: Ints
    place: Ints
    action: NDArray[np.int8]
    masks: Words


def scores(plan: Plan, values: Values, out: NDArray[np.float64]) -> None:
    """Write the score of each candidate for each problem to `out`, shape (problems, candidates)."""
    action = np.full(len(plan.forest.thresholds), _RIGHT, np.int8)
    for (_, _, first, count), kind in zip(plan.forest.families.tolist(), plan.families[:, 0], strict=True):
        action[first : first + count] = {Kind.TILE: _TILE, Kind.VARIANT: _VARIANT, Kind.MIXED: _MIXED}.get(kind, _RIGHT)
    test, below = _nodes(plan)
    place = _places(plan)
    for problem, row in enumerate(out):
        _decide(plan, values.constants[problem], action)
        for block in plan.blocks:
            masks = _masks(plan, block, values.rows[problem, :, block.tiles])
            sums = _walk(_Problem(plan, test, below, place, action, masks), block)
            row[block.candidates] = plan.forest.to_float(sums[block.tile_of, block.variant_of])


def _nodes(plan: Plan) -> tuple[Ints, Ints]:
    if not plan.nodes:
        nodes = plan.forest.nodes.astype(np.intp)
        plan.nodes.append((nodes[:, 0].copy(), nodes[:, :0:-1].ravel()))
    known: tuple[Ints, Ints] = plan.nodes[0]
    return known


def _places(plan: Plan) -> Ints:
    families = plan.forest.families.astype(np.intp)
    count = families[:, 3]
    place = np.stack([plan.families[:, 2] - families[:, 2], count, plan.families[:, 3]]).repeat(count, axis=1)
    place[0] += np.arange(place.shape[1])
    return place


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


def _walk(problem: _Problem, block: Block) -> NDArray[np.int64]:
    """Sums of leaves, shape (tiles, variants, 2)."""
    plan, forest = problem.plan, problem.plan.forest
    tiles = block.tiles.stop - block.tiles.start
    sums = np.zeros((tiles, plan.variants, 2), np.int64)
    parts = [0, 1] if forest.leaves[:, 1].any() else [0]
    words = words_for(tiles) + words_for(plan.variants)
    step = max(_WORDS // (words * max(len(forest.leaves) // len(forest.roots), 1)), 1)
    for start in range(0, len(forest.roots), step):
        levels = _down(problem, forest.roots[start : start + step].astype(np.intp), tiles)
        for part in parts:
            _up(levels, forest.leaves[:, part], sums[..., part])
    return sums


def _down(problem: _Problem, roots: Ints, tiles: int) -> list[_Level]:
    everything = [as_masks(np.ones((1, count), np.bool_)) for count in (tiles, problem.plan.variants)]
    states = _States(roots, *(np.repeat(full, len(roots), axis=0) for full in everything))
    levels = []
    while True:
        _skip(problem, states.node)
        inner = np.flatnonzero(states.node >= 0)
        parts = _split(problem, states.take(inner)) if len(inner) else None
        levels.append(_Level(states, inner, parts))
        if parts is None:
            return levels
        states = parts.states


def _skip(problem: _Problem, node: Ints) -> None:
    """Move states on, in place, until they are at a leaf or at a test that the problem does not decide."""
    moving = np.flatnonzero(node >= 0)
    at = node.take(moving)
    while len(moving):
        decided = problem.action.take(problem.test.take(at))
        goes_on = np.flatnonzero(decided <= _LEFT)
        moving = moving.take(goes_on)
        at = problem.below.take(2 * at.take(goes_on) + decided.take(goes_on))
        node[moving] = at
        inner = np.flatnonzero(at >= 0)
        moving, at = moving.take(inner), at.take(inner)


def _split(problem: _Problem, states: _States) -> _Parts:
    test = problem.test.take(states.node)
    kinds = problem.action.take(test)
    made: list[tuple[Ints, _Parts]] = []
    for kind, masks in ((_TILE, problem.masks), (_VARIANT, problem.plan.variant_masks)):
        chosen = np.flatnonzero(kinds == kind)
        if len(chosen):
            mask = masks.take(problem.place[0].take(test.take(chosen)), 0)
            made.append((chosen, _halves(states.take(chosen), problem.below, mask, is_tile=kind == _TILE)))
    mixed = np.flatnonzero(kinds == _MIXED)
    if len(mixed):
        made.append((mixed, _split_mixed(problem, states.take(mixed), problem.place.take(test.take(mixed), 1))))
    return _joined(made, len(states.node))


def _joined(made: list[tuple[Ints, _Parts]], count: int) -> _Parts:
    largest, first = np.empty(count, np.intp), 0
    other, beside = [], []
    for chosen, parts in made:
        largest[chosen] = parts.largest + first
        other.append(parts.other + first)
        beside.append(parts.beside + first)
        first += len(parts.states.node)
    columns = ([getattr(parts.states, name) for _, parts in made] for name in _States.__slots__)
    return _Parts(_States(*map(np.concatenate, columns)), largest, np.concatenate(other), np.concatenate(beside))


def _halves(states: _States, below: Ints, mask: Words, *, is_tile: bool) -> _Parts:
    """Split each state in two by its mask; the larger halves come first, then the smaller ones that are not empty."""
    whole = states.tiles if is_tile else states.variants
    left = whole & mask
    right = whole ^ left
    in_left, in_right = sizes(left), sizes(right)
    is_left = in_left >= in_right
    column = is_left[:, None]
    other = np.flatnonzero(np.minimum(in_left, in_right))
    kept = np.concatenate([np.where(column, left, right), np.where(column, right, left).take(other, 0)])
    at = 2 * states.node
    node = np.concatenate([below.take(at + is_left), below.take((at + ~is_left).take(other))])
    rest = states.variants if is_tile else states.tiles
    rest = np.concatenate([rest, rest.take(other, 0)])
    parts = _States(node, kept, rest) if is_tile else _States(node, rest, kept)
    count = len(states.node)
    return _Parts(parts, np.arange(count), np.arange(count, len(node)), other)


def _split_mixed(problem: _Problem, states: _States, place: Ints) -> _Parts:
    """Split in three: left and right of the variants for which the test is as for the first, and the others."""
    plan = problem.plan
    mask, step, partition = place
    left, alike = np.empty_like(states.tiles), np.empty_like(states.variants)
    for number in np.unique(partition):
        chosen = np.flatnonzero(partition == number)
        members = plan.class_masks[plan.class_starts[number] : plan.class_starts[number + 1]]
        at = mask[chosen, None] + step[chosen, None] * np.arange(len(members))
        of_class = states.variants[chosen, None] & members
        inside = states.tiles[chosen, None] & problem.masks.take(at, 0)
        exists = of_class.any(axis=2)
        first = inside[np.arange(len(chosen)), exists.argmax(axis=1)]
        is_alike = exists & (inside == first[:, None]).all(axis=2)
        left[chosen] = first
        alike[chosen] = np.bitwise_or.reduce(np.where(is_alike[..., None], of_class, np.uint64(0)), axis=1)
    at = 2 * states.node
    node = np.stack([problem.below.take(at + 1), problem.below.take(at), states.node], axis=1)
    tiles = np.stack([left, states.tiles & ~left, states.tiles], axis=1)
    variants = np.stack([alike, alike, states.variants & ~alike], axis=1)
    every = _States(*(array.reshape(-1, *array.shape[2:]) for array in (node, tiles, variants)))
    area = sizes(every.tiles) * sizes(every.variants)
    kept = np.flatnonzero(area)
    number_of = np.cumsum(area > 0) - 1
    state = np.arange(len(at))
    largest = 3 * state + area.reshape(-1, 3).argmax(axis=1)
    is_other = area > 0
    is_other[largest] = False
    other = np.flatnonzero(is_other)
    return _Parts(every.take(kept), number_of[largest], number_of[other], number_of[largest[other // 3]])


def _up(levels: list[_Level], leaves: Leaves, sums: NDArray[np.int64]) -> None:
    """Add leaf values to sums by tile and variant, shape (tiles, variants)."""
    value = np.zeros(0, np.int64)  # of the states below
    tiles, variants, more = [], [], []
    for level in reversed(levels):
        node = level.states.node
        here = leaves.take(np.maximum(~node, 0))
        if level.parts is not None:
            below = level.parts
            here[level.inner] = value.take(below.largest)
            difference = value.take(below.other) - value.take(below.beside)
            kept = np.flatnonzero(difference)
            other = below.other.take(kept)
            tiles.append(below.states.tiles.take(other, 0))
            variants.append(below.states.variants.take(other, 0))
            more.append(difference.take(kept))
        value = here
    sums += value.sum()
    if tiles:
        _add(np.concatenate(tiles), np.concatenate(variants), np.concatenate(more), sums)


def _add(of_tiles: Words, of_variants: Words, more: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
    tiles, variants = sums.shape
    sets, of_set = _distinct(of_variants)
    spread = _bits(sets, variants).astype(np.float64)
    pieces = (more >> _PIECE).astype(np.float64), (more & ((1 << _PIECE) - 1)).astype(np.float64)
    step = min(max(_CELLS // tiles, 1), _ENTRIES)
    for start in range(0, len(more), step):
        some = slice(start, start + step)
        held = np.flatnonzero(_bits(of_tiles[some], tiles))
        entry = held // tiles
        cell = held + ((of_set[some] - np.arange(len(of_set[some]))) * tiles).take(entry)
        upper, lower = (_spread(cell, piece[some].take(entry), spread, tiles) for piece in pieces)
        sums += (upper << _PIECE) + lower


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
