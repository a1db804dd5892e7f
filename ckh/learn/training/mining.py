"""Hard-example mining: problems whose held-out choices are worst weigh more in the next round.

Off unless it is requested: where a problem is hard because its sizes are unlike all others, weight does not help, and
AMD saw it cost 1.4 % of efficiency. So the plain round is always among those that are compared, and the best is kept.
The weights of a round, and which round is kept, follow from held-out efficiencies: that of the kept round flatters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

HARD_SHARE = 0.2
FACTOR = 2.0
MOST = 5.0


@dataclass(frozen=True, slots=True)
class MiningRound:
    """Result of a round; round 0 has equal weights."""

    number: int
    raised: int
    """Problems with more weight than others."""
    mean_efficiency: float
    p10_efficiency: float


@dataclass(frozen=True, slots=True)
class Mined:
    """All rounds, and the one that is kept: the highest mean efficiency, the first of equals."""

    rounds: tuple[MiningRound, ...]
    kept: int


def harder(weight: NDArray[np.float64], efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights of problems after a round, from those in it and the efficiencies that it reached, shape (problems,).

    Problems at or below the HARD_SHARE quantile of efficiency, and below 1, weigh FACTOR times as much, MOST at most.
    """
    is_hard = (efficiency <= np.quantile(efficiency, HARD_SHARE)) & (efficiency < 1.0)
    return np.where(is_hard, np.minimum(weight * FACTOR, MOST), weight)


def row_weights(weight: NDArray[np.float64], problem: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weights of rows, shape (rows,), from those of their problems; their mean is 1."""
    rows = weight[problem]
    return np.asarray(rows / rows.mean())


def mine(
    rounds: int,
    problems: int,
    efficiency_of: Callable[[int, NDArray[np.float64]], NDArray[np.float64]],
) -> Mined:
    """Train in rounds, each with the weights that follow from the one before; ends early when none changes.

    Args:
        rounds: how many, besides the plain one.
        problems: how many there are.
        efficiency_of: trains with weights of problems; given the round's number, returns the held-out efficiency of
            the choice for each problem. Shapes (problems,).
    """
    weight = np.ones(problems)
    made: list[MiningRound] = []
    for number in range(rounds + 1):
        efficiency = efficiency_of(number, weight)
        p10 = float(np.percentile(efficiency, 10))
        made.append(MiningRound(number, int((weight > 1.0).sum()), float(efficiency.mean()), p10))
        after = harder(weight, efficiency)
        if (after == weight).all():
            break
        weight = after
    return Mined(tuple(made), max(range(len(made)), key=lambda i: (made[i].mean_efficiency, -i)))
