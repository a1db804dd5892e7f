"""Padding the channels of problems, so that kernels with wide vectors can run them.

A padded problem is another problem: it is measured, stored and compared as what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.ops.grouped_conv.problem import ConvProblem

CHANNEL_MULTIPLE = 8  # what the widest common vector of 16 bits divides


def pad_channels(problems: Iterable[ConvProblem], multiple: int = CHANNEL_MULTIPLE) -> tuple[ConvProblem, ...]:
    """The problems with C and K of each group rounded up to the multiple, each once, in their order."""
    return tuple(dict.fromkeys(_padded(problem, multiple) for problem in problems))


def padded(problem: ConvProblem) -> ConvProblem:
    """The problem with C and K of each group rounded up to what all kernels of the pool can load; itself if it is."""
    try:
        return _padded(problem, CHANNEL_MULTIPLE)
    except UsageError:  # it has more channels than a problem may have
        return problem


def _padded(problem: ConvProblem, multiple: int) -> ConvProblem:
    c, k = (-(-size // multiple) * multiple * problem.g for size in (problem.c_per_group, problem.k_per_group))
    return problem.replaced(c=c, k=k)
