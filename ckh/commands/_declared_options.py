"""Options of commands that dataclasses declare (`ckh.declared`)."""

from __future__ import annotations

import inspect
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import typer

from ckh.commands import _completion
from ckh.commands._duration import parse_duration
from ckh.declared import declarations
from ckh.errors import UsageError
from ckh.requested import as_option
from ckh.untrusted import integer

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = "_s"


def option_of(values: type, name: str) -> Any:
    """The option of a field, for a command that has only some of those that a dataclass declares."""
    found = declarations(values)[name]
    is_number = _kind(values, name) is int
    return typer.Option(
        None,
        *(found.typed or (_typed(name),)),
        help=found.help if found.choices is None else found.help.format(", ".join(found.choices())),
        metavar=found.metavar,
        min=found.low if is_number else None,
        max=found.high if is_number else None,
        autocompletion=getattr(_completion, found.completion) if found.completion else None,
        show_default=False,
    )


def has_options_of(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, before its own options, those that dataclasses declare.

    Its first arguments are then, for each of the dataclasses, what was given for its fields by name.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        types = get_type_hints(command)
        own = list(inspect.signature(command).parameters.values())[len(groups) :]
        kinds = {name: (values, _kind(values, name)) for values in groups for name in declarations(values)}

        @wraps(command)
        def with_groups(**typed: Any) -> None:
            given = {name: _value(values, name, typed.pop(name)) for name, (values, _) in kinds.items()}
            parts = ({name: given[name] for name in declarations(one) if given[name] is not None} for one in groups)
            command(*parts, **typed)

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            *(
                inspect.Parameter(name, keyword, default=option_of(values, name), annotation=kind | None)
                for name, (values, kind) in kinds.items()
            ),
            *(one.replace(kind=keyword, annotation=types[one.name]) for one in own),
        ]
        with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_groups.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_groups

    return decorate


def _typed(name: str) -> str:
    return as_option(name.removesuffix(_SECONDS))


def _kind(values: type, name: str) -> Any:
    """The type of what is typed for a field."""
    if kind := declarations(values)[name].kind:
        return kind
    hint = get_type_hints(values)[name]
    inner = next((one for one in get_args(hint) if one is not NoneType), hint) if NoneType in get_args(hint) else hint
    return inner if inner in (int, bool) else str


def _value(values: type, name: str, typed: Any) -> Any:
    """The value of a field, parsed from what was typed."""
    if typed is None:
        return None
    if name.endswith(_SECONDS):
        return parse_duration(typed)
    if "tuple" in str(get_type_hints(values)[name]):
        return _numbers(_typed(name), typed, least=declarations(values)[name].low or 0)
    return typed if isinstance(typed, (int, bool)) else str(typed)


def _numbers(option: str, text: str, *, least: int) -> tuple[int, ...]:
    try:
        numbers = [integer(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text!r} is no list of numbers", "write it like 1,2,4") from None
    if min(numbers) < least:
        raise UsageError(f"{option} {text!r} has a number below {least}", "write it like 1,2,4")
    return tuple(dict.fromkeys(numbers))
