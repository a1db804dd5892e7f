"""Checks of what Python passes to `ckh.rank` and its like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


def require_count(top: int | None) -> None:
    """Refuse a number of kernels below 0; raises `UsageError`."""
    if top is not None and top < 0:
        raise UsageError(f"top must be 0 or more, not {top}", "leave it out for all kernels", code="out-of-range")


def require_problems(problems: Iterable[object]) -> None:
    """Refuse what are no problems; raises `TypeError`."""
    for problem in problems:
        if not hasattr(problem, "canonical"):
            raise TypeError(f"a problem must be a ckh.ConvProblem, a ckh.GemmProblem or such, not {problem!r:.80}")
