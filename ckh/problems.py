"""Terms shared by problems of several operations: directions of a convolution, element types, names of sets."""

from __future__ import annotations

import json
from abc import abstractmethod
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.strenum import StrEnum
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class Direction(StrEnum):
    """Direction of a convolution."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"


class PasteableProblem:
    """Base of problems, whose representation is the Python expression that makes them."""

    __slots__ = ()

    @abstractmethod
    def canonical(self) -> str:
        """Return a text that holds the complete identity."""

    def __repr__(self) -> str:
        return f"ckh.problem({self.canonical()!r})"


# Element types with their sizes, and other spellings in PyTorch, JAX, NumPy, C++ and AMD's libraries, in lower case.
_DTYPES = json.loads(Path(__file__).with_name("dtypes.json").read_bytes())
DTYPE_BYTES: dict[str, float] = {dtype["name"]: dtype["bytes"] for dtype in _DTYPES}
_DTYPE_OF: dict[str, str] = {
    spelling: dtype["name"] for dtype in _DTYPES for spelling in (dtype["name"], *dtype["spellings"])
}

_LIMIT = 2**31 - 1

# Problem sets that AMD mentions but has not published.
UNPUBLISHED_SETS = frozenset({"crawler"})


def dtype_name(spelling: str) -> str:
    """Normalize the name of an element type; any other text is returned unchanged."""
    return _DTYPE_OF.get(spelling.lower().removeprefix("torch.").removeprefix("ck_tile::"), spelling)


def unknown_dtype(name: str, known: Iterable[str] = tuple(DTYPE_BYTES)) -> UsageError:
    """Error for an unknown element type."""
    return UsageError(f"unknown dtype {name!r}", one_of(name, tuple(known), also=_DTYPE_OF), code="unknown-dtype")


def as_integer(value: Any) -> Any:
    """Convert any other integer, such as NumPy's, to Python's; other values, also truth values, are returned."""
    if isinstance(value, int):
        return value
    try:
        return index(value)
    except TypeError:
        return value


def whole(name: str, value: object) -> int:
    """Return an integer, which may be NumPy's, as Python's."""
    number = as_integer(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise UsageError(f"{name} must be an integer, not {value!r}", code="bad-number")
    return number


def settle_size(problem: object, name: str, column: str = "", least: int = 1) -> None:
    """Store a size of a new problem as Python's integer."""
    value = getattr(problem, name)
    size = check_size(column or name, value, least)
    if size is not value:
        object.__setattr__(problem, name, size)


def check_size(column: str, value: object, least: int = 1) -> int:
    """Return a size as Python's integer."""
    value = whole(column, value)
    if not least <= value <= _LIMIT:
        raise UsageError(f"{column} must be {least} or more (and below 2^31), not {value}", code="out-of-range")
    return value


def unknown_set(message: str, name: str, names: Iterable[str]) -> UsageError:
    """Error for an unknown problem set."""
    if name in UNPUBLISHED_SETS:
        return UsageError(
            f"AMD has not published its problem set {name!r}",
            "give its file if you have it: --problems FILE",
            code="unpublished-set",
        )
    return UsageError(message, one_of(name, names), code="unknown-set")
