"""Hard-example mining: problems with the worst held-out choices get more weight in the next round.

Off by default: if a problem is hard because its sizes are unlike all others, weight does not help, and AMD observed a
loss of 1.4 % efficiency. So the round with equal weights is always compared, and the best round is kept. Weights and
the kept round are derived from held-out efficiencies: that of the kept round is biased upwards.
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
    """Problems with increased weight."""
    mean_efficiency: float
    p10_efficiency: float


@dataclass(frozen=True, slots=True)
class Mined:
    """All rounds, and the one that is kept: the highest mean efficiency, the first of ties."""

    rounds: tuple[MiningRound, ...]
    kept: int


def harder(weight: NDArray[np.float64], efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
    """Update the weights of problems from the efficiencies of a round, shape (problems,).

    Problems at or below the HARD_SHARE quantile of efficiency, and below 1, get FACTOR times the weight, at most MOST.
    """
    is_hard = (efficiency <= np.quantile(efficiency, HARD_SHARE)) & (efficiency < 1.0)
    return np.where(is_hard, np.minimum(weight * FACTOR, MOST), weight)


def row_weights(weight: NDArray[np.float64], problem: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of rows from those of their problems, shape (rows,), normalized to mean 1."""
    rows = weight[problem]
    return np.asarray(rows / rows.mean())


def mine(
    rounds: int,
    problems: int,
    efficiency_of: Callable[[int, NDArray[np.float64]], NDArray[np.float64]],
) -> Mined:
    """Train in rounds, each with weights derived from the previous one; stops early when weights do not change.

    Args:
        rounds: number of rounds after the round with equal weights.
        problems: number of problems.
        efficiency_of: trains with weights of problems; given the index of the round, returns the held-out efficiency of
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
