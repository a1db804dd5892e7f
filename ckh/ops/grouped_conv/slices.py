"""Slices of problems that efficiency is reported for, besides the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.problem import ConvProblem

_SMALL_BATCH = 8
_Test = Callable[["ConvProblem"], bool]


def _taps(problem: ConvProblem) -> set[int]:
    """Filter sizes; the depth of a 3D filter counts where it is more than 1, so (2+1)D layers are what they look."""
    return {problem.y, problem.x} | ({problem.z} if problem.z > 1 else set())


# Kind of slice -> slice -> whether a problem is in it. The slices of a kind do not overlap.
SLICES: dict[str, dict[str, _Test]] = {
    "dimensions": {"2D": lambda p: p.ndim == 2, "3D": lambda p: p.ndim == 3},  # noqa: PLR2004
    "filter": {
        "1x1": lambda p: _taps(p) == {1},
        "3x3": lambda p: _taps(p) == {3},
        "other": lambda p: _taps(p) not in ({1}, {3}),
    },
    "groups": {
        "dense": lambda p: p.g == 1,
        "grouped": lambda p: p.g > 1 and p.c_per_group > 1,
        "depthwise": lambda p: p.g > 1 and p.c_per_group == 1,
    },
    "stride": {
        "unit stride": lambda p: max(p.stride_d, p.stride_h, p.stride_w) == 1,
        "strided": lambda p: max(p.stride_d, p.stride_h, p.stride_w) > 1,
    },
    "batch": {
        "N = 1": lambda p: p.n == 1,
        "N = 2 to 8": lambda p: 1 < p.n <= _SMALL_BATCH,
        "N > 8": lambda p: p.n > _SMALL_BATCH,
    },
}
