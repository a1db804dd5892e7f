"""Schemas of JSON documents for tests: generation from the documents' dataclasses, and comparison.

`CKH_UPDATE_GOLDEN=1 pytest tests/test_jsonschemas.py` writes them to ckh/jsonschemas.
"""

from __future__ import annotations

import collections.abc
import json
import re
import sys
import typing
from dataclasses import fields as dataclass_fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.documents import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema import Draft202012Validator

CODE = Path(__file__).parents[1] / "ckh"
FOLDER = CODE / "jsonschemas"
FIELDS = Path(__file__).parent / "json_fields_1.txt"
_COLUMNS = 120
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_HEAD = {
    "schema_version": {
        "type": "string",
        "pattern": "^1\\.[0-9]+$",
        "description": "Version of all schemas; a field that is added raises the second number.",
    },
    "ckh_version": {"type": "string", "description": "Version of ckh that wrote the document."},
}
_LEFT_OUT = {
    "type": "object",
    "additionalProperties": {"type": "integer"},
    "description": "Entries of files that were left out, by file and reason; absent without any.",
}


@cache
def documents() -> dict[str, type[Document]]:
    """The document of each schema."""
    for path in sorted(CODE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^class .*\bDocument[,)]", text, re.MULTILINE):
            for name in (_module(path), *re.findall(r"^    from (ckh\.\S+) import", text, re.MULTILINE)):
                import_module(name)  # names in annotations are imported only for the type checker
    kinds = {kind for kind in _classes().values() if isinstance(kind, type) and issubclass(kind, Document)}
    return {kind.schema: kind for kind in kinds - {Document}}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(CODE.parent).with_suffix("").parts)


@cache
def _classes() -> dict[str, Any]:
    """Classes of the loaded ckh modules by name, each of which is unique, and the building blocks of types."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "ckh"]
    named = {name: kind for module in modules for name, kind in vars(module).items() if isinstance(kind, type)}
    return vars(typing) | vars(collections.abc) | named


def schema_of(document: type[Document]) -> dict[str, Any]:
    """The schema of a document, from its annotations and docstrings."""
    assert documents()[document.schema] is document  # imports the names in its annotations
    made = _generated(document)
    defs = {name: _object(node, _classes()[name]) for name, node in made["$defs"].items() if "properties" in node}
    others = {name: _tidy(node) for name, node in made["$defs"].items() if "properties" not in node}
    own = defs.pop(document.__name__)
    head = {"schema": {"const": f"ckh.{document.schema}"}, **_HEAD}
    return {
        "$schema": _DIALECT,
        "$id": f"urn:ckh:{document.schema}:1",
        "title": own["description"].rstrip("."),
        "type": "object",
        "required": [*head, *own["required"]],
        "properties": head | {"left_out": _LEFT_OUT} | own["properties"],
        **({"$defs": defs | others} if defs or others else {}),
    }


def _generated(kind: Any) -> dict[str, Any]:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(use_attribute_docstrings=True, defer_build=True)
    adapter: TypeAdapter[Any] = TypeAdapter(dict[str, kind], config=config)
    adapter.rebuild(_types_namespace=_classes())
    result: dict[str, Any] = {"$defs": {}, **adapter.json_schema(mode="serialization")}
    return result


def _object(node: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Schema of a dataclass: all fields are required except those that documents may omit, including properties."""
    absent = {
        dataclass_field.name
        for dataclass_field in dataclass_fields(kind)
        if dataclass_field.default is None and issubclass(kind, Document)
    }
    properties = {
        name.rstrip("_"): _field(item, is_null=name not in absent) for name, item in node["properties"].items()
    }
    for name in getattr(kind, "json_properties", ()):
        getter = getattr(kind, name).fget
        hint = typing.get_type_hints(getter, {**vars(sys.modules[kind.__module__]), **_classes()})["return"]
        item = _generated(hint)["additionalProperties"]
        properties[name] = _field({**item, "description": _first(getter.__doc__)}, is_null=True)
    properties.pop(inline := getattr(kind, "json_inline", ""), None)
    return {
        "type": "object",
        "description": _first(kind.__doc__),
        "required": [name for name in properties if name not in absent],
        "properties": properties,
        **({"additionalProperties": True} if inline else {}),
    }


def _field(node: dict[str, Any], *, is_null: bool) -> dict[str, Any]:
    made = {name: value for name, value in _tidy(node).items() if name != "default"}
    if not is_null and isinstance(made.get("anyOf"), list):
        (made["anyOf"],) = [[item for item in made["anyOf"] if item != {"type": "null"}]]
        if len(made["anyOf"]) == 1:
            made |= made.pop("anyOf")[0]
    elif not is_null and isinstance(made.get("type"), list):
        made["type"] = next(item for item in made["type"] if item != "null")
    return made


def _tidy(node: Any) -> Any:
    """A node without titles that repeat names, and with unions of plain types as a list."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {name: _tidy(item) for name, item in node.items() if name != "title" or not isinstance(item, str)}
    options = made.get("anyOf", ())
    if options and all(set(option) == {"type"} for option in options):
        del made["anyOf"]
        made = {"type": [option["type"] for option in options], **made}
    return made


def _first(docstring: str | None) -> str:
    """First paragraph, in one line."""
    return " ".join((docstring or "").partition("\n\n")[0].split())


def schema_text(document: type[Document]) -> str:
    """Text of a document's schema file."""
    return _text(schema_of(document), 0) + "\n"


def _text(node: Any, indent: int) -> str:
    """A node as JSON, in one line if it fits."""
    line, inner = json.dumps(node), " " * (indent + 1)
    if (indent and len(inner + line) <= _COLUMNS) or not isinstance(node, (dict, list)):
        return line
    parts = (
        [f"{json.dumps(name)}: {_text(item, indent + 1)}" for name, item in node.items()]
        if isinstance(node, dict)
        else [_text(item, indent + 1) for item in node]
    )
    first, last = "{}" if isinstance(node, dict) else "[]"
    return f"{first}\n" + ",\n".join(inner + part for part in parts) + f"\n{' ' * indent}{last}"


def require_described(schema: str, document: dict[str, Any]) -> None:
    """Refuse a document with a field that its schema lacks, or that contradicts it."""
    errors = [
        f"{'.'.join(map(str, iter_error.path))}: {iter_error.message}"
        for iter_error in _strict(schema).iter_errors(_plain(document))
    ]
    assert not errors, f"ckh/jsonschemas/{schema}.json: {errors[0][:500]}"


def _plain(document: dict[str, Any]) -> Any:
    """Document as read back: lists, and string keys. NaN is kept, for the writer to refuse."""
    return json.loads(json.dumps(document))


@cache
def _strict(schema: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(_closed(read_schema(schema)))


def read_schema(schema: str) -> dict[str, Any]:
    """A shipped schema."""
    document: dict[str, Any] = json.loads((FOLDER / f"{schema}.json").read_text(encoding="utf-8"))
    return document


def _closed(node: Any) -> Any:
    """The schema without additional fields in objects whose fields it describes."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {name: _closed(item) for name, item in node.items()}
    return {"additionalProperties": False, **made} if "properties" in made and made.get("type") == "object" else made


def fields(schema: str) -> Iterator[str]:
    """A line for each field that a schema requires: its path and its type."""
    document = read_schema(schema)
    yield from (f"{schema} {line}" for line in _fields(document, document.get("$defs", {}), ""))


def _fields(node: Any, defs: dict[str, Any], path: str) -> Iterator[str]:
    if "$ref" in node:
        yield from _fields(_named(node, defs), defs, path)
    for item in node.get("anyOf", ()):
        yield from _fields(item, defs, path)
    for name in node.get("required", ()):
        item = node["properties"][name]
        yield f"{path}{name} {'|'.join(_types(item, defs))}".rstrip()
        yield from _fields(item, defs, f"{path}{name}.")
    if isinstance(node.get("items"), dict):
        yield from _fields(node["items"], defs, f"{path}[].")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _fields(node["additionalProperties"], defs, f"{path}*.")


def _types(node: Any, defs: dict[str, Any]) -> list[str]:
    if "$ref" in node:
        return _types(_named(node, defs), defs)
    kind = node.get("type", [])
    own = kind if isinstance(kind, list) else [kind]
    return list(dict.fromkeys([*own, *(kind for item in node.get("anyOf", ()) for kind in _types(item, defs))]))


def _named(node: Any, defs: dict[str, Any]) -> Any:
    return defs[node["$ref"].rpartition("/")[2]]
