"""Terms that the problems of several operations share: directions of a convolution, element types, names of sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterable


class Direction(StrEnum):
    """Which of the three computations of a convolution."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"


DTYPE_BYTES: dict[str, float] = {
    "fp64": 8.0,
    "fp32": 4.0,
    "int32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "bf8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "pk_fp4": 0.5,
}

# Problem sets that AMD speaks of and has not published.
UNPUBLISHED_SETS = frozenset({"crawler"})


def unknown_set(message: str, name: str, names: Iterable[str]) -> UsageError:
    """The error of a name that no problem set has.

    Args:
        message: what is wrong with it, unless it is one of `UNPUBLISHED_SETS`.
        name: the name.
        names: the sets that there are.
    """
    if name in UNPUBLISHED_SETS:
        return UsageError(
            f"AMD has not published its problem set {name!r}",
            "give its file if you have it: --problems FILE",
            code="unpublished-set",
        )
    return UsageError(message, "the sets are " + ", ".join(names), code="unknown-set")
