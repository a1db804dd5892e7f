"""Options of commands that dataclasses declare (`ckh.declared`)."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import typer

from ckh.commands import _completion
from ckh.declared import declarations
from ckh.errors import UsageError
from ckh.files.untrusted import integer
from ckh.requested import as_option
from ckh.strenum import StrEnum
from ckh.text.durations import parse_budget, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SECONDS = "_s"


def option_of(values: type, name: str) -> Any:
    """Typer option of a single field, for commands with a subset of the declared options."""
    declaration = declarations(values)[name]
    is_number = _kind(values, name) in (int, float)
    return typer.Option(
        None,
        *(declaration.typed or (typed_as(name),)),
        help=declaration.help
        if declaration.choices is None
        else declaration.help.format(", ".join(declaration.choices())),
        metavar=declaration.metavar,
        min=declaration.low if is_number else None,
        max=declaration.high if is_number else None,
        autocompletion=getattr(_completion, declaration.completion) if declaration.completion else None,
        show_default=False,
    )


def has_options_of(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: replace the parameters of these names by the options that dataclasses declare.

    The command receives such a parameter as a dictionary of the given values by field name.
    """
    options = {
        part: {name: (_kind(values, name), option_of(values, name)) for name in declarations(values)}
        for part, values in groups.items()
    }
    made = {part: partial(_given, values) for part, values in groups.items()}
    return lambda command: with_options(command, options, made)


def with_options(
    command: Callable[..., None],
    groups: Mapping[str, Mapping[str, tuple[Any, Any]]],
    made: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[..., None]:
    """Replace parameters of a command by groups of options: type and Typer option by name.

    The command receives as such a parameter what is made of the values of its options, which are None if not given.
    """
    types = get_type_hints(command)

    @wraps(command)
    def with_groups(*first: Any, **typed: Any) -> None:
        given = {part: made[part]({name: typed.pop(name) for name in options}) for part, options in groups.items()}
        command(*first, **given, **typed)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            for name, (kind, option) in groups[parameter.name].items():
                parameters.append(inspect.Parameter(name, keyword, default=option, annotation=kind | None))
        else:
            parameters.append(parameter.replace(kind=keyword, annotation=types[parameter.name]))
    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


def typed_as(name: str) -> str:
    """Default spelling of the option of a field."""
    return as_option(name.removesuffix(_SECONDS))


def _given(values: type, typed: dict[str, Any]) -> dict[str, Any]:
    """The values of the fields of a dataclass that were given."""
    return {name: _value(values, name, value) for name, value in typed.items() if value is not None}


def _kind(values: type, name: str) -> Any:
    """Type of the option of a field."""
    if kind := declarations(values)[name].kind:
        return kind
    hint = get_type_hints(values)[name]
    members = get_args(hint)
    inner = next((member for member in members if member is not NoneType), hint) if NoneType in members else hint
    is_plain = inner in (int, bool, float) or (isinstance(inner, type) and issubclass(inner, StrEnum))
    return inner if is_plain and not name.endswith(_SECONDS) else str


def _value(values: type, name: str, typed: Any) -> Any:
    """Value of a field, parsed from the command line."""
    if name.endswith(_SECONDS):
        return parse_budget(typed) if name == "budget_s" else parse_duration(typed)
    if "tuple" in str(get_type_hints(values)[name]):
        return _numbers(typed_as(name), typed, least=int(declarations(values)[name].low or 0))
    return str(typed) if declarations(values)[name].kind else typed


def _numbers(option: str, text: str, *, least: int) -> tuple[int, ...]:
    try:
        numbers = [integer(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is not a list of numbers", "write it like 1,2,4", code="bad-number"
        ) from None
    if min(numbers) < least:
        raise UsageError(f"{option} {text!r} has a number below {least}", "write it like 1,2,4", code="out-of-range")
    return tuple(dict.fromkeys(numbers))
