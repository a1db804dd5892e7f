"""Scores that the analytic estimate completes: of kernels that a model does not know, and of those that it ties.

Plain numbers without NumPy, so that quick answers are those of the full command to the last bit.
"""

from __future__ import annotations

from itertools import compress
from math import fsum, log
from typing import TYPE_CHECKING

from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_TIE_BREAK = 1e-9  # less than two leaves of trees differ by, more than a double's last digits


class Completion(StrEnum):
    """How the estimate completes a model's scores."""

    FILLED = "filled"
    TIE_BROKEN = "tie-broken"


def filled(score: Sequence[float], minus_us: Sequence[float], is_known: Sequence[bool]) -> list[float]:
    """Scores in which those of unknown kernels are read off a line, the least squares of known scores.

    The line is over the logarithms of the estimated times, and never falls: a kernel that is estimated to be faster
    scores no less.

    Args:
        score: a model's scores of a problem's kernels, those of unknown kernels without meaning.
        minus_us: minus the estimated times.
        is_known: which kernels the model knows, at least one.
    """
    estimated = [-log(-one) for one in minus_us]
    known, scores = list(compress(estimated, is_known)), list(compress(score, is_known))
    mean, middle = fsum(known) / len(known), fsum(scores) / len(known)
    variance = fsum((one - mean) ** 2 for one in known)
    product = fsum((one - mean) * (own - middle) for one, own in zip(known, scores, strict=True))
    slope = max(product / variance, 0.0) if variance > 0 else 0.0
    return [
        own if is_own else middle + slope * (one - mean)
        for own, one, is_own in zip(score, estimated, is_known, strict=True)
    ]


def tie_breaks(minus_us: Iterable[float]) -> dict[float, float]:
    """The tie breaker of each estimate: up to `MOST_TIE_BREAK`, by its rank among the distinct estimates.

    Args:
        minus_us: minus the estimated times of a problem's kernels.
    """
    distinct = sorted(set(minus_us))
    last = max(1, len(distinct) - 1)
    return {one: MOST_TIE_BREAK * (place / last) for place, one in enumerate(distinct)}
