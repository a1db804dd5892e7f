"""Splitting a pool's columns in two, so that few distinct halves combine to all candidates.

One half (the *tile*) holds the columns read by features that change with the problem, the other (the *variant*) the
rest. The assignment minimizes an estimate of the work; without any gain, everything is tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ranking.packed import words_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import Array

_TABLE = 1 << 22  # keys up to here are counted in a table rather than sorted
_EXACT = 2.0**53  # integers below are exact in float64
_MOST_VARIANTS = 512
_FEW_TEXTS = 8
_MIXED = 3  # cost of a test of both halves for each class of variants, relative to other tests


@dataclass(frozen=True, slots=True)
class Use:
    """A reader of kernel columns."""

    reads: frozenset[str]
    nodes: int
    is_dynamic: bool


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Distinct values of some columns over the candidates."""

    first: NDArray[np.intp]
    of: NDArray[np.intp]


def coded(column: Array) -> NDArray[np.int64]:
    """Encode a column's values as integers from 0, in order of first occurrence."""
    array = np.asarray(column)
    if array.size and (array == array[0]).all():
        return np.zeros(len(array), np.int64)
    if array.dtype.kind in "bif" and array.size:
        least, most = float(array.min()), float(array.max())
        if max(-least, most) < _EXACT and most - least < array.size:
            whole = array.astype(np.int64)
            if (whole == array).all():
                return _ranked(whole - int(least), int(most - least) + 1)
    if array.dtype.kind == "U" and array.size:  # comparisons of few texts are faster than a dictionary
        codes, first = np.full(len(array), -1, np.int64), 0
        for code in range(_FEW_TEXTS):
            codes[array == array[first]] = code
            first = int(np.argmin(codes))
            if codes[first] >= 0:
                return codes
    values = array.tolist()
    table = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(table.__getitem__, values), np.int64, len(values))


def _ranked(codes: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Renumber codes below `size` by their first occurrence."""
    first = np.full(size, len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    rank = np.empty(size, np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(size)
    return rank[codes]


def keys(codes: Sequence[NDArray[np.int64]], candidates: int) -> Keys:
    """Find the distinct combinations of coded columns."""
    _, first, of = np.unique(_combined(codes, candidates), return_index=True, return_inverse=True)
    return Keys(first, of.reshape(-1))


def _combined(codes: Sequence[NDArray[Any]], candidates: int) -> NDArray[Any]:
    key, size = np.zeros(candidates, np.int64), 1
    for column in codes:
        radix = int(column.max(initial=0)) + 1
        key, size = column if size == 1 else key * radix + column, size * radix
        if size > _TABLE:
            distinct, key = np.unique(key, return_inverse=True)
            key, size = key.reshape(-1).astype(column.dtype), len(distinct)
    return key


def _count(codes: Sequence[NDArray[Any]], candidates: int) -> int:
    key = _combined(codes, candidates)
    seen = np.zeros(int(key.max()) + 1, np.bool_)
    seen[key] = True
    return int(np.count_nonzero(seen))


def split(codes: Mapping[str, NDArray[np.int64]], uses: Sequence[Use], candidates: int) -> frozenset[str]:
    """Select the columns of the tile half; the others are the variant half."""
    search = _Search(codes, uses, candidates)
    dynamic = {name: sum(use.nodes for use in uses if use.is_dynamic and name in use.reads) for name in codes}
    most = max(dynamic.values(), default=0)
    tile = frozenset(name for name, nodes in dynamic.items() if nodes > most / 4)
    best, cost = tile, search.cost(tile)
    while True:
        moves = [best ^ {name} for name in codes]
        costs = [search.cost(move) for move in moves]
        if not moves or min(costs) >= cost:
            break
        cost = min(costs)
        best = moves[costs.index(cost)]
    everything = frozenset(codes)
    return everything if search.cost(everything) <= cost else best


class _Search:
    def __init__(self, codes: Mapping[str, NDArray[np.int64]], uses: Sequence[Use], candidates: int) -> None:
        self._codes = {name: column.astype(np.int32) for name, column in codes.items() if column.any()}
        self._uses = uses
        self._candidates = candidates
        self._counts: dict[frozenset[str], int] = {frozenset(): 1}
        self._costs: dict[frozenset[str], float] = {}

    def cost(self, tile: frozenset[str]) -> float:
        """Estimated number of steps for ranking."""
        if tile not in self._costs:
            self._costs[tile] = self._cost(tile)
        return self._costs[tile]

    def _cost(self, tile: frozenset[str]) -> float:
        tiles, variants = self._distinct(tile), self._distinct(frozenset(self._codes) - tile)
        if variants > _MOST_VARIANTS:
            return np.inf
        words = words_for(tiles)
        step = 1 + words / 8 + tiles / 256  # cost of a test that splits the tiles
        work = float(variants * tiles)
        for use in self._uses:
            inside, outside = use.reads & tile, use.reads - tile
            if inside and not outside:
                work += use.nodes * step
            elif inside or use.is_dynamic:
                work += use.nodes * step * _MIXED * self._distinct(outside)
            else:
                work += use.nodes * (1 + tiles / 64)
        return work

    def _distinct(self, names: frozenset[str]) -> int:
        names = names.intersection(self._codes)
        if names not in self._counts:
            self._counts[names] = _count([self._codes[name] for name in sorted(names)], self._candidates)
        return self._counts[names]
