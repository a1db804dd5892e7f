"""Options of commands declared as fields of a dataclass.

A field whose name ends in `_s` is a duration in seconds, typed like "20m" under its name without that ending.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Declared:
    """Declaration of a field as an option."""

    help: str  # with {} for the choices
    kind: type | None = None  # of the typed value, if not the field's
    typed: tuple[str, ...] = ()  # names of the option, if not the field's
    metavar: str | None = None  # placeholder of the value in the help
    choices: Callable[[], Sequence[str]] | None = None
    low: float | None = None
    high: float | None = None
    completion: str = ""  # the function of `ckh.commands._completion` that completes it


def declared(declaration: Declared, *, default: Any = MISSING) -> Any:
    """Declare a dataclass field as an option; without a default the dataclass needs a value."""
    return field(default=default, metadata={_KEY: declaration})


def declarations(values: type) -> dict[str, Declared]:
    """Options declared by a dataclass, by field name."""
    return {option.name: option.metadata[_KEY] for option in fields(values) if _KEY in option.metadata}
