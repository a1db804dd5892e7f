"""Schemas of JSON documents for tests: comparing a document, and listing the fields that a version has."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[1] / "ckh" / "jsonschemas"
FIELDS = Path(__file__).parent / "json_fields_1.txt"


def require_described(schema: str, document: dict[str, Any]) -> None:
    """Refuse a document with a field that its schema lacks, or that is not as the schema says."""
    errors = [f"{'.'.join(map(str, one.path))}: {one.message}" for one in _strict(schema).iter_errors(_plain(document))]
    assert not errors, f"ckh/jsonschemas/{schema}.json: {errors[0][:500]}"


def _plain(document: dict[str, Any]) -> Any:
    """As it is read back: lists, and keys that are text. NaN stays, for the writer to refuse."""
    return json.loads(json.dumps(document))


@cache
def _strict(schema: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(_closed(read_schema(schema)))


def read_schema(schema: str) -> dict[str, Any]:
    """A schema as it ships."""
    found: dict[str, Any] = json.loads((FOLDER / f"{schema}.json").read_text(encoding="utf-8"))
    return found


def _closed(node: Any) -> Any:
    """The schema with no fields but those it describes, where it describes any."""
    if isinstance(node, list):
        return [_closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {name: _closed(one) for name, one in node.items()}
    return {"additionalProperties": False, **made} if "properties" in made and made.get("type") == "object" else made


def fields(schema: str) -> Iterator[str]:
    """A line for each field that a schema requires: its path and its type."""
    document = read_schema(schema)
    yield from (f"{schema} {line}" for line in _fields(document, document.get("$defs", {}), ""))


def _fields(node: Any, defs: dict[str, Any], path: str) -> Iterator[str]:
    if "$ref" in node:
        yield from _fields(defs[node["$ref"].rpartition("/")[2]], defs, path)
    for one in node.get("anyOf", ()):
        yield from _fields(one, defs, path)
    for name in node.get("required", ()):
        one = node["properties"][name]
        kind = one.get("type", "")
        yield f"{path}{name} {'|'.join(kind) if isinstance(kind, list) else kind}".rstrip()
        yield from _fields(one, defs, f"{path}{name}.")
    if isinstance(node.get("items"), dict):
        yield from _fields(node["items"], defs, f"{path}[].")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _fields(node["additionalProperties"], defs, f"{path}*.")
