"""The search strategies by name.

Differential evolution over value indices (Storn & Price 1997, best/1/bin), repaired to legal configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import UsageError
from ckh.search.strategies.strategy import RandomOrder, Strategy
from ckh.search.strategies.surrogate import Surrogate
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.search.strategy_space import Space

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
    "de": DifferentialEvolution,
    "random": RandomOrder,
}
DEFAULT_STRATEGY = "surrogate"


def make_strategy(
    name: str, space: Space, seed: int = 0, prior: NDArray[np.float64] | None = None, starts: Sequence[int] = ()
) -> Strategy:
    """Make a strategy by name; the other arguments are those of `Strategy`."""
    if name not in STRATEGIES:
        raise UsageError(f"unknown search strategy {name!r}", one_of(name, STRATEGIES), code="unknown-name")
    return STRATEGIES[name](space, seed, prior, starts)


__all__ = ["DEFAULT_STRATEGY", "STRATEGIES", "Strategy", "make_strategy"]
