"""The search strategies by name.

Differential evolution over value indices (Storn & Price 1997, best/1/bin), repaired to legal configurations.

Iterated local search: descend to a local optimum, kick it, descend again; start anew when kicks no longer help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import UsageError
from ckh.search.strategies.strategy import RandomOrder, Strategy
from ckh.search.strategies.surrogate import Surrogate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.search.strategy_space import Space

_STARTS = 8
_PATIENCE = 3  # unsuccessful kicks before a restart
_KICK = 2  # parameters changed by a kick


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
                result = yield from self._descend(start)
                failures = 0 if self._time_ms[result] < self._time_ms[best] else failures + 1
                best = min(best, result, key=self._time_ms.__getitem__)
            if not self.is_exhausted:
                best = self._random_left()
                yield best

    def _descend(self, start: int) -> Generator[int, None, int]:
        """Move to better neighbours until there is none; returns the local optimum."""
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


_POPULATION = 20
_CROSSOVER = 0.7
_WEIGHTS = (0.3, 0.9)


class DifferentialEvolution(Strategy):
    """A population of twenty; each trial mixes a member with the best one, moved by the difference of two others."""

    def _propose(self) -> Iterator[int]:
        population = []
        for index in self._opening(_POPULATION, _POPULATION):
            yield index
            population.append(index)
        for _ in range(max(_POPULATION - len(population), 0)):
            if self.is_exhausted:
                return
            population.append(self._random_left())
            yield population[-1]
        self._expected = ()  # a trial depends on the results before it
        while not self.is_exhausted:
            for position in range(len(population)):
                if self.is_exhausted:
                    return
                trial = self._nearest_left(self._trial(population, position))
                yield trial
                if self._time_ms[trial] <= self._time_ms[population[position]]:
                    population[position] = trial

    def _trial(self, population: list[int], position: int) -> NDArray[np.int32]:
        codes = self._space.codes
        member = codes[population[position]]
        best = codes[min(population, key=self._time_ms.__getitem__)]
        item, other = (codes[population[i]] for i in self._rng.choice(len(population), 2))
        moved = best + self._rng.uniform(*_WEIGHTS) * (item - other)
        # A category has no direction: it is the best member's if the two others agree, else the first one's.
        is_ordered = np.array([parameter.is_ordered for parameter in self._space.parameters])
        moved = np.where(is_ordered, np.rint(moved), np.where(item == other, best, item))
        highest = np.array([len(parameter.values) - 1 for parameter in self._space.parameters])
        is_mixed = self._rng.random(len(member)) < _CROSSOVER
        is_mixed[self._rng.integers(len(member))] = True
        mixed = np.where(is_mixed, np.clip(moved, 0, highest), member)
        return np.asarray(mixed.astype(np.int32))


STRATEGIES: dict[str, type[Strategy]] = {
    "surrogate": Surrogate,
    "local": LocalSearch,
    "de": DifferentialEvolution,
    "random": RandomOrder,
}
DEFAULT_STRATEGY = "surrogate"


def make_strategy(
    name: str, space: Space, seed: int = 0, prior: NDArray[np.float64] | None = None, starts: Sequence[int] = ()
) -> Strategy:
    """Make a strategy by name; the other arguments are those of `Strategy`.

    Raises:
        UsageError: there is no such strategy.
        DataError: the prior does not fit the space.
    """
    if name not in STRATEGIES:
        raise UsageError(
            f"unknown search strategy {name!r}", f"choose one of {', '.join(STRATEGIES)}", code="unknown-name"
        )
    return STRATEGIES[name](space, seed, prior, starts)


__all__ = ["DEFAULT_STRATEGY", "STRATEGIES", "Strategy", "make_strategy"]
