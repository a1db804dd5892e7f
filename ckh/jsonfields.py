"""Reading JSON files field by field, so that a malformed one is reported by file and field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ckh.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T", str, bool, int)

Triple = tuple[int, int, int]

_TRIPLE = 3


class JsonFields:
    """The object of a JSON file, whose fields are taken one by one.

    Each method takes one field, checks its type and raises `DataError` naming file and field. `finish` refuses what
    was not taken: a misspelt field is an error, not a default.
    """

    def __init__(self, path: Path, values: Any, where: str = "") -> None:
        self._path = path
        self._where = where
        if not isinstance(values, dict):
            raise DataError(f"{path}: {where.rstrip('.') or 'the file'} must be an object")
        self._values: dict[str, Any] = dict(values)

    @classmethod
    def read(cls, path: Path) -> JsonFields:
        """Open a file that holds one object."""
        try:
            return cls(path, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read {path}: {error}") from error

    def names(self) -> tuple[str, ...]:
        """Names of the fields not yet taken."""
        return tuple(self._values)

    def scalar(self, name: str, kind: type[T]) -> T:
        """A string, an integer or true/false."""
        value = self._take(name)
        if type(value) is not kind:
            self.fail(name, f"must be of type {kind.__name__}, not {value!r}")
        return value

    def number(self, name: str) -> float:
        """A number."""
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(name, f"must be a number, not {value!r}")
        return float(value)

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._take(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(name, "must be a list of strings")
        return tuple(value)

    def string_triples(self, name: str) -> tuple[tuple[str, str, str], ...]:
        """A list of lists of three strings."""
        value = self._take(name)
        if not isinstance(value, list) or not all(_is_triple(item, str) for item in value):
            self.fail(name, "must be a list of lists of three strings")
        return tuple((a, b, c) for a, b, c in value)

    def triple(self, name: str) -> Triple:
        """A list of three integers."""
        value = self._take(name)
        if not _is_triple(value, int):
            self.fail(name, "must be a list of three integers")
        return value[0], value[1], value[2]

    def triples(self, name: str) -> tuple[Triple, ...]:
        """A list of lists of three integers."""
        value = self._take(name)
        if not isinstance(value, list) or not all(_is_triple(item, int) for item in value):
            self.fail(name, "must be a list of lists of three integers")
        return tuple((m, n, k) for m, n, k in value)

    def part(self, name: str) -> JsonFields:
        """An object inside this one."""
        return JsonFields(self._path, self._take(name), f"{self._where}{name}.")

    def is_string(self, name: str) -> bool:
        """Whether a field that is still to be taken holds text."""
        return isinstance(self._values.get(name), str)

    def is_null(self, name: str) -> bool:
        """Whether a field is null; one that is, is taken."""
        if self._values.get(name, self) is not None:
            return False
        del self._values[name]
        return True

    def finish(self) -> None:
        """Refuse fields that nobody took."""
        for name in self._values:
            self.fail(name, "is not a known field")

    def _take(self, name: str) -> Any:
        if name not in self._values:
            self.fail(name, "is missing")
        return self._values.pop(name)

    def fail(self, name: str, problem: str) -> NoReturn:
        """Report a field."""
        raise DataError(f"{self._path}: {self._where}{name} {problem}")


def _is_triple(value: object, kind: type) -> bool:
    return isinstance(value, list) and len(value) == _TRIPLE and all(type(item) is kind for item in value)
