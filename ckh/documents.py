"""The documents that `--json` prints: records, from which their schemas are generated (tests/jsonschemas.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from ckh.records import Record
from ckh.version import __version__

# Of all files in ckh/jsonschemas: the second number rises with a field that is added, the first with one that changes
# or goes, which no minor version of ckh does.
JSON_VERSION = "1.1"

_SCALARS = frozenset((str, int, float, bool, type(None)))


class Document(Record):
    """A document of `--json`.

    Its docstring begins with the schema's title, the docstrings under its fields describe them, and a field that is
    None by default is left out while it is. Any record or dataclass within a document may list properties in
    `json_properties`, which follow its fields, and name a mapping in `json_inline`, whose items are fields beside its
    own.

    Attributes:
        schema: name of its schema, and of the file in `ckh/jsonschemas`.
    """

    schema: ClassVar[str]


class ErrorDocument(Document):
    """The error of a command that was called with --json and has no result."""

    schema = "error"

    code: str
    """Kind of error (docs/ci.md lists them); it stays when the message is reworded."""
    message: str
    """What is wrong and where."""
    hint: str
    """What to do about it; empty where the message says it."""
    exit_code: int
    """Exit code of the command."""


def json_text(document: Document) -> str:
    """One JSON document, which says by which schema it reads, and who wrote it.

    Raises:
        ValueError: the document holds NaN or an infinity, which are not JSON.
    """
    return json.dumps(enveloped(document), indent=2, allow_nan=False) + "\n"


def enveloped(document: Document) -> dict[str, Any]:
    """A document behind the three fields that all have."""
    head = {"schema": f"ckh.{document.schema}", "schema_version": JSON_VERSION, "ckh_version": __version__}
    return {**head, **plain(document)}


def plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses and mappings as objects, sequences as lists.

    A field's name may end in an underscore where Python has the word itself.
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
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@cache
def _fields_in_json(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Names of a dataclass' fields and further properties, of fields that may be absent, and of an inline mapping."""
    names = _field_names(kind)
    optional = (name for name in names if issubclass(kind, Document) and kind.field_defaults.get(name, "") is None)
    return (*names, *getattr(kind, "json_properties", ())), tuple(optional), getattr(kind, "json_inline", "")


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a record or dataclass by name, for a document that has them too."""
    return {name: getattr(value, name) for name in _field_names(type(value))}


def _field_names(kind: Any) -> tuple[str, ...]:
    if issubclass(kind, Record):
        names: tuple[str, ...] = kind.field_names
        return names
    from dataclasses import fields

    return tuple(one.name for one in fields(kind))
