"""The search strategies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.search.strategies.base import RandomOrder, Strategy
from ckh.search.strategies.evolution import DifferentialEvolution
from ckh.search.strategies.local import LocalSearch
from ckh.search.strategies.surrogate import Surrogate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ckh.search.space import Space

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
    """A strategy by its name; the arguments are those of `Strategy`.

    Raises:
        UsageError: there is no such strategy.
        DataError: the prior does not fit the space.
    """
    if name not in STRATEGIES:
        raise UsageError(
            f"there is no search strategy {name!r}", f"choose one of {', '.join(STRATEGIES)}", code="unknown-name"
        )
    return STRATEGIES[name](space, seed, prior, starts)


__all__ = ["DEFAULT_STRATEGY", "STRATEGIES", "Strategy", "make_strategy"]
