"""The documents that `--json` prints: records from which their schemas are generated (tests/jsonschemas.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from ckh.records import Record
from ckh.text.log import left_out
from ckh.version import __version__

# Version of all files in ckh/jsonschemas: the minor number is incremented for an added field, the major number for a
# changed or removed field, which no minor version of ckh has.
JSON_VERSION = "1.1"

_SCALARS = frozenset((str, int, float, bool, type(None)))


class Document(Record):
    """A document of `--json`.

    Its docstring begins with the schema's title, the docstrings under its fields are their descriptions, and a field
    with the default None is omitted while it is None. Any record or dataclass within a document may list properties in
    `json_properties`, which follow its fields, and name a mapping in `json_inline`, whose items become fields of its
    own.

    Attributes:
        schema: name of its schema, and of the file in `ckh/jsonschemas`.
    """

    schema: ClassVar[str]


class ErrorDocument(Document):
    """Error of a command called with --json that has no result."""

    schema = "error"

    code: str
    """Kind of error (docs/ci.md lists them); it does not change when the message is reworded."""
    message: str
    """What is wrong and where."""
    hint: str
    """What to do about it; empty if the message says it."""
    exit_code: int
    """Exit code of the command."""


def json_text(document: Document) -> str:
    """Format a JSON document with its schema and the version of ckh."""
    return json.dumps(enveloped(document), indent=2, allow_nan=False) + "\n"


def enveloped(document: Document) -> dict[str, Any]:
    """Convert a document, preceded by the three fields common to all documents.

    A command that has left out entries of files, and has no field `left_out` of its own, names them there.
    """
    head = {"schema": f"ckh.{document.schema}", "schema_version": JSON_VERSION, "ckh_version": __version__}
    own, entries = plain(document), left_out()
    return {**head, **({"left_out": entries} if entries else {}), **own}


def plain(value: Any) -> Any:
    """Convert a value to JSON types: dataclasses and mappings to objects, sequences to lists.

    A field's name may end in an underscore if it is a Python keyword without it.
    """
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    if issubclass(kind, Record) or hasattr(kind, "__dataclass_fields__"):
        names, optional, inline = _fields_in_json(kind)
        held = {name.rstrip("_"): plain(getattr(value, name)) for name in names}
        for name in optional:
            if held[name] is None:
                del held[name]
        return held.pop(inline, {}) | held
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@cache
def _fields_in_json(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Names of a dataclass' fields and further properties, of optional fields, and of an inline mapping."""
    names = _field_names(kind)
    optional = (name for name in names if issubclass(kind, Document) and kind.field_defaults.get(name, "") is None)
    return (*names, *getattr(kind, "json_properties", ())), tuple(optional), getattr(kind, "json_inline", "")


def fields_of(value: Any) -> dict[str, Any]:
    """Fields of a record or dataclass by name, for use in a document with the same fields."""
    return {name: getattr(value, name) for name in _field_names(type(value))}


def _field_names(kind: Any) -> tuple[str, ...]:
    if issubclass(kind, Record):
        names: tuple[str, ...] = kind.field_names
        return names
    from dataclasses import fields

    return tuple(field.name for field in fields(kind))
