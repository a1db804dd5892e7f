"""JSON: a bounded parser for untrusted input, and field-by-field validation with errors that name file and field.

Python's own parser accepts any depth until the stack overflows, integers of any size, duplicate fields, and may use a
hundred times the memory of the text; this one limits documents to `MOST_DEPTH` levels, `MOST_VALUES` values and
integers of 64 bits.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ckh.errors import DataError, ModelError
from ckh.files.untrusted import MOST_MODEL_BYTES, MOST_TEXT_BYTES, as_text, read_bytes, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from decimal import Decimal
    from pathlib import Path

MOST_DEPTH = 64
MOST_VALUES = 1 << 22  # per document: Python uses up to a hundred bytes for each
MOST_MODEL_VALUES = 1 << 20  # in a JSON file of a model's folder: twice the maximum that training writes

T = TypeVar("T", str, bool, int)

Triple = tuple[int, int, int]

_TRIPLE = 3
_PLURALS: dict[type, str] = {str: "strings", int: "integers"}
_LIMIT = 2**63
_SHOWN = 80


class JsonError(ValueError):
    """Text that is not valid JSON, or exceeds the limits; `line` is its line from 1, or 0 if unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def parse_json(
    text: str | bytes, *, unique: bool = False, decimals: bool = False, most_values: int = MOST_VALUES
) -> Any:
    """Parse a document; with `unique`, objects with duplicate fields are refused.

    With `decimals`, numbers with a fraction are `Decimal`, with all digits of the text, and integers are of any size.
    """
    marks = (b",", b"[", b"{") if isinstance(text, bytes) else (",", "[", "{")
    if sum(map(text.count, marks)) > most_values:  # type: ignore[arg-type]
        raise JsonError(f"it has more than {most_values} values")
    try:
        document = json.loads(
            text,
            parse_float=_decimal if decimals else None,
            object_pairs_hook=_object if unique else None,
        )
    except json.JSONDecodeError as error:
        raise JsonError(f"not JSON: {error.msg}", error.lineno) from error
    except UnicodeDecodeError as error:
        raise JsonError("not text in UTF-8") from error
    except RecursionError as error:
        raise _too_deep() from error
    except JsonError:
        raise
    except ValueError as error:  # by Python's limit on the digits of an integer
        raise _too_large() from error
    _check(document, any_integer=decimals)
    try:
        require_characters(text, document)
    except UnicodeEncodeError as error:
        raise JsonError("it has an unpaired surrogate") from error
    return document


def require_characters(text: str | bytes, document: Any) -> None:
    """Refuse a document with an unpaired surrogate in a string or name, which cannot be encoded."""
    if (b"\\u" in text or b"\xed" in text) if isinstance(text, bytes) else "\\u" in text:
        json.dumps(document, ensure_ascii=False, default=str).encode()


def read_json(path: Path, *, unique: bool = False, decimals: bool = False) -> Any:
    """Read the document in a file."""
    text = as_text(path, read_bytes(path, MOST_TEXT_BYTES))
    try:
        return parse_json(text, unique=unique, decimals=decimals)
    except JsonError as error:
        raise _in_file(path, error) from error


@contextmanager
def own_document(path: Path, of: str) -> Iterator[None]:
    """Refuse a document of ckh's that lacks fields, or has others than it was written with."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise DataError(f"{path}: not the output of {of}: {error!r}", code="bad-field") from error


@contextmanager
def model_fields(path: Path) -> Iterator[JsonFields]:
    """The fields of a JSON file of a model's folder, plain or gzipped; errors are reported as of the model."""
    try:
        content = unpacked(read_bytes(path, MOST_MODEL_BYTES), str(path), MOST_MODEL_BYTES)
        try:
            document = parse_json(as_text(path, content), most_values=MOST_MODEL_VALUES)
        except JsonError as error:
            raise _in_file(path, error) from error
        yield JsonFields(path, document)
    except DataError as error:
        hint = "get the model's folder from its source again, or train the model again"
        raise ModelError(error.message, hint, code=error.code) from error


def _in_file(path: Path, error: JsonError) -> DataError:
    where = f"{path}:{error.line}" if error.line else str(path)
    return DataError(f"{where}: {error}", "was it written to its end?" if error.line else "", code="bad-json")


def _check(document: Any, *, any_integer: bool) -> None:
    level = [document]
    for _ in range(MOST_DEPTH):
        inner = [value for node in level if isinstance(node, (dict, list)) for value in _values(node)]
        if not any_integer and any(type(value) is int and not -_LIMIT <= value < _LIMIT for value in (*level, *inner)):
            raise _too_large()
        level = [value for value in inner if isinstance(value, (dict, list))]
        if not level:
            return
    raise _too_deep()


def _values(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise JsonError(f"duplicate field: {next(name for name in names if names.count(name) > 1)[:_SHOWN]!r}")
    return fields


def _decimal(text: str) -> Decimal:
    from decimal import Decimal, InvalidOperation

    try:
        return Decimal(text)
    except InvalidOperation as error:  # an exponent of more than 18 digits
        raise JsonError(f"not a number: {text[:_SHOWN]}") from error


def _too_deep() -> JsonError:
    return JsonError(f"nested more than {MOST_DEPTH} levels deep")


def _too_large() -> JsonError:
    return JsonError("an integer has more than 64 bits")


class JsonFields:
    """The object of a JSON file, whose fields are taken one by one.

    Each method takes one field, checks its type and raises `DataError` naming file and field. `finish` refuses fields
    that were not taken: a misspelt field is an error, not a default.
    """

    def __init__(self, path: Path, values: Any, where: str = "") -> None:
        self._path = path
        self._where = where
        if not isinstance(values, dict):
            raise DataError(f"{path}: {where.rstrip('.') or 'the file'} must be an object", code="bad-field")
        self._values: dict[str, Any] = dict(values)

    @classmethod
    def read(cls, path: Path) -> JsonFields:
        """Open a file that holds one object."""
        return cls(path, read_json(path))

    def names(self) -> tuple[str, ...]:
        """Names of the fields not yet taken."""
        return tuple(self._values)

    def scalar(self, name: str, kind: type[T]) -> T:
        """A string, an integer or true/false."""
        value = self._take(name, f"a value of type {kind.__name__}")
        if type(value) is not kind:
            self.fail(name, f"must be of type {kind.__name__}, not {_shown(value)}")
        return value

    def value(self, name: str) -> Any:
        """A value of any type."""
        return self._take(name)

    def number(self, name: str) -> float:
        """A number."""
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(name, f"must be a number, not {_shown(value)}")
        return float(value)

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._take(name, "a list of strings")
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            self.fail(name, f"must be a list of strings, not {_shown(value)}")
        return tuple(value)

    def rows(self, name: str, kinds: Sequence[type]) -> list[list[Any]]:
        """A list of lists, each with one item of each of these types; a float is finite, or an integer."""
        value, expected = self._take(name, "a list of lists"), list(kinds)
        if not isinstance(value, list):
            self.fail(name, f"must be a list of lists, not {_shown(value)}")
        for number, row in enumerate(value):
            is_row = type(row) is list and (
                len(row) == len(expected) and all(map(_is_item, row, expected))
                if float in expected
                else list(map(type, row)) == expected
            )
            if not is_row:
                kind_names = ", ".join(kind.__name__ for kind in expected)
                self.fail(f"{name}[{number}]", f"must be a list of {kind_names}, not {_shown(row)}")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        value = self._take(name, "a list of numbers")
        if not isinstance(value, list) or not all(_is_item(number, float) for number in value):
            self.fail(name, f"must be a list of finite numbers, not {_shown(value)}")
        return tuple(map(float, value))

    def triple(self, name: str) -> Triple:
        """A list of three integers."""
        value = self._take(name)
        if not _is_triple(value, int):
            self.fail(name, "must be a list of three integers")
        return value[0], value[1], value[2]

    def triples(self, name: str, kind: type[T]) -> tuple[tuple[T, T, T], ...]:
        """A list of lists of three values of a type."""
        value = self._take(name)
        if not isinstance(value, list) or not all(_is_triple(item, kind) for item in value):
            self.fail(name, f"must be a list of lists of three {_PLURALS[kind]}")
        return tuple((a, b, c) for a, b, c in value)

    def part(self, name: str) -> JsonFields:
        """A nested object."""
        return JsonFields(self._path, self._take(name), f"{self._where}{name}.")

    def parts(self) -> Iterator[tuple[str, JsonFields]]:
        """The nested objects of all fields not yet taken; each is finished after its use."""
        for name in self.names():
            part = self.part(name)
            yield name, part
            part.finish()

    def integers(self) -> dict[str, int]:
        """All fields not yet taken, which are integers."""
        return {name: self.scalar(name, int) for name in self.names()}

    def has(self, name: str) -> bool:
        """True if there is such a field and it has not been taken."""
        return name in self._values

    def is_string(self, name: str) -> bool:
        """True if a field that has not been taken is a string."""
        return isinstance(self._values.get(name), str)

    def is_null(self, name: str) -> bool:
        """True if a field is null; it is then taken."""
        if self._values.get(name, self) is not None:
            return False
        del self._values[name]
        return True

    def finish(self) -> None:
        """Refuse fields that were not taken."""
        for name in self._values:
            self.fail(name, "is not a known field")

    def _take(self, name: str, expected: str = "") -> Any:
        if name not in self._values:
            self.fail(name, f"is missing, expected {expected}" if expected else "is missing")
        return self._values.pop(name)

    def fail(self, name: str, problem: str) -> NoReturn:
        """Report an invalid field."""
        raise DataError(f"{self._path}: {self._where}{name} {problem}", code="bad-field")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _is_item(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    return type(value) is kind


def _is_triple(value: object, kind: type) -> bool:
    return isinstance(value, list) and len(value) == _TRIPLE and all(type(item) is kind for item in value)
