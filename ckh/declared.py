"""Options of commands that are declared where their values are: as fields of a dataclass.

A field whose name ends in `_s` is a length of time in seconds, typed like "20m" without that ending.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a field as an option.

    Attributes:
        help: what it is, with {} for what there is to choose from.
        kind: type of what is typed, where it is not the field's.
        typed: how it is typed, where that is not the field's name.
        metavar: what the help shows for its value.
        choices: what there is to choose from.
        low: the least value.
        high: the greatest.
        completion: the function of `ckh.commands._completion` that completes it.
    """

    help: str
    kind: type | None = None
    typed: tuple[str, ...] = ()
    metavar: str | None = None
    choices: Callable[[], Sequence[str]] | None = None
    low: float | None = None
    high: float | None = None
    completion: str = ""


def declared(declaration: Declared, *, default: Any = MISSING) -> Any:
    """A field of a dataclass that is an option too; without a default the dataclass needs a value."""
    return field(default=default, metadata={_KEY: declaration})


def declarations(values: type) -> dict[str, Declared]:
    """The options that a dataclass declares, by the names of their fields."""
    return {one.name: one.metadata[_KEY] for one in fields(values) if _KEY in one.metadata}
