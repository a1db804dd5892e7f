"""Iterated local search: descend to a local optimum, kick it, descend again; start anew when kicks no longer help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.search.strategies.base import Strategy

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from numpy.typing import NDArray

_STARTS = 8
_PATIENCE = 3  # kicks without success before a restart
_KICK = 2  # parameters that a kick changes


class LocalSearch(Strategy):
    """First improvement among the configurations that differ in one parameter, nearest values first."""

    def _propose(self) -> Iterator[int]:
        starts = self._opening(_STARTS, _STARTS)
        yield from starts
        best = min(starts, key=self._time_ms.__getitem__)
        while not self.is_exhausted:
            best = yield from self._descend(best)
            failures = 0
            while failures < _PATIENCE and not self.is_exhausted:
                start = self._nearest_left(self._kicked(best))
                yield start
                found = yield from self._descend(start)
                failures = 0 if self._time_ms[found] < self._time_ms[best] else failures + 1
                best = min(best, found, key=self._time_ms.__getitem__)
            if not self.is_exhausted:
                best = self._random_left()
                yield best

    def _descend(self, start: int) -> Generator[int, None, int]:
        """Move to a better neighbour until there is none; the local optimum."""
        here, moved = start, True
        while moved:
            moved = False
            self._expected = self._neighbours(here)
            for neighbour in self._expected:
                if not self._is_proposed[neighbour]:
                    yield neighbour
                if self._time_ms[neighbour] < self._time_ms[here]:
                    here, moved = neighbour, True
                    break
        return here

    def _neighbours(self, index: int) -> list[int]:
        near = self._rng.permutation(self._space.neighbours(index, adjacent=True))
        far = self._rng.permutation(np.setdiff1d(self._space.neighbours(index), near))
        return [int(neighbour) for neighbour in (*near, *far)]

    def _kicked(self, index: int) -> NDArray[np.int32]:
        codes: NDArray[np.int32] = self._space.codes[index].copy()
        for i in self._rng.choice(len(codes), min(_KICK, len(codes)), replace=False):
            codes[i] = self._rng.integers(len(self._space.parameters[i].values))
        return codes
