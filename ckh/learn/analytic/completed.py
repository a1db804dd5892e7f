"""Scores completed by the analytic estimate: for kernels unknown to a model, for its ties, and by a veto.

The order of demotions in an answer: kernels measured on this problem stand in front, in the order of their times; then
those of the first ones that the estimate does not veto, the vetoed ones, and all others. Scores have less, by a lead of
the model, for kernels that never won, or were never measured.

Plain Python numbers without NumPy, so that quick answers are bit-identical to those of the full command.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import compress
from math import fsum, log
from typing import TYPE_CHECKING

from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_TIE_BREAK = 1e-9  # less than differences between leaf sums, more than a double's rounding
JUDGED = 20  # first kernels of an answer that the estimate may veto
_TOO_SLOW = 1.3  # times the best estimate among them


class Completion(StrEnum):
    """How the estimate completes a model's scores."""

    ALONE = "alone"  # there are no trees
    FILLED = "filled"
    TIE_BROKEN = "tie-broken"


def filled(score: Sequence[float], minus_us: Sequence[float], is_known: Sequence[bool]) -> list[float]:
    """Fill in the scores of unknown kernels from a line fitted to the known scores by least squares.

    The line is over the log of the estimated time, and never decreases with estimated speed.
    """
    estimated = [-log(-us) for us in minus_us]
    known, scores = list(compress(estimated, is_known)), list(compress(score, is_known))
    mean, middle = fsum(known) / len(known), fsum(scores) / len(known)
    variance = fsum((speed - mean) ** 2 for speed in known)
    product = fsum((speed - mean) * (own - middle) for speed, own in zip(known, scores, strict=True))
    slope = max(product / variance, 0.0) if variance > 0 else 0.0
    return [
        own if is_own else middle + slope * (speed - mean)
        for own, speed, is_own in zip(score, estimated, is_known, strict=True)
    ]


def tie_breaks(minus_us: Iterable[float]) -> Callable[[float], float]:
    """Tie breaker of an estimate: up to `MOST_TIE_BREAK`, by its rank among the distinct estimates."""
    distinct = sorted(set(minus_us))
    last = max(1, len(distinct) - 1)
    return lambda estimate: MOST_TIE_BREAK * (bisect_left(distinct, estimate) / last)


def vetoed(score: Sequence[float], minus_us: Sequence[float]) -> Sequence[float]:
    """Scores of the first kernels, best first: those that the estimate does not call too slow are put above the others.

    Both parts keep their order, and no kernel falls behind those that follow the first ones.
    """
    least = _TOO_SLOW * max(minus_us)
    if min(minus_us) > least:
        return score
    above = score[0] - score[-1] + MOST_TIE_BREAK
    return [own + above if estimate > least else own for own, estimate in zip(score, minus_us, strict=True)]
