"""Random damage of inputs, aware of their structure: bytes, lines, fields, JSON values."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HUGE = b"9" * 5000  # more digits than Python converts to an integer
TOKENS: tuple[bytes, ...] = (
    *(b"", b" ", b"\n", b"\r", b"\r\n", b"\t", b"\0", b"\x1b[31m", b"\x1b]0;x\x07", b"\xff\xfe", b"\xef\xbb\xbf"),
    *(b'"', b"'", b"\\", b",", b";", b":", b"=", b"_", b"-", b"x", b"{", b"}", b"[", b"]", b"(", b")", b"../", b"/"),
    *(b"0", b"-1", b"1", b"1.5", b"64.0", b"1e400", b"-1e400", b"1e-400", b"NaN", b"nan", b"inf", b"Infinity"),
    *(b"2147483647", b"2147483648", b"9223372036854775807", b"9223372036854775808", b"9" * 400, HUGE),
    *(b"1e999999999", b"1e9999999999999999999999", b"true", b"null", b"None", b"True", b"\xd9\xa3", b"1_000"),
    *(b"[" * 2000, b'{"a":' * 500, b"[" * 100_000, b"(" * 300, b"not " * 200, "\u2028".encode(), "é".encode()),
    *(b"gfx999", b"fp64", b"pk_fp4", b"int4", b"compv9", b"tile_m", b"\xed\xa0\x80"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 64.0, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, -0.0, 1e308, 1e-320),
    *(float("nan"), float("inf"), "", "x", "nan", "1", "\0", "\x1b[31m", "../../x", 'a"b', "é" * 50, "\ud800"),
    *([], {}, [[]], [None], [1, 2, 3], {"a": 1}, {"": {}}, [{}], "9" * 5000, [[[[[[1]]]]]]),
)
_FIELD = re.compile(rb"[^\s,;:=]+")


class Mutator:
    """Damages samples, deterministic for a seed."""

    def __init__(self, samples: Sequence[bytes], seed: int) -> None:
        self.random = random.Random(seed)
        self._samples = samples
        self._documents = [document for sample in samples if (document := _parsed(sample)) is not None]
        self._steps: list[Callable[[bytes], bytes]] = [
            *(self._flip, self._cut, self._double, self._insert, self._truncate, self._splice),
            *(self._line_twice, self._line_less, self._lines_swapped),
            *(self._field_for_token, self._field_for_token, self._field_for_field),
        ]

    def next(self) -> bytes:
        """Return another damaged input."""
        if self._documents and self.random.random() < 0.5:
            content = self._json()
            if self.random.random() < 0.8:
                return content
        else:
            content = self.random.choice(self._samples)
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 5))):
            content = self.random.choice(self._steps)(content)
        return content

    def _place(self, content: bytes) -> int:
        return self.random.randrange(len(content) + 1)

    def _span(self, content: bytes) -> tuple[int, int]:
        start = self._place(content)
        return start, min(len(content), start + self.random.choice((1, 1, 2, 4, 16, 100)))

    def _flip(self, content: bytes) -> bytes:
        flipped = bytearray(content)
        for _ in range(self.random.choice((1, 1, 2, 8))):
            if flipped:
                flipped[self.random.randrange(len(flipped))] ^= 1 << self.random.randrange(8)
        return bytes(flipped)

    def _cut(self, content: bytes) -> bytes:
        start, end = self._span(content)
        return content[:start] + content[end:]

    def _double(self, content: bytes) -> bytes:
        start, end = self._span(content)
        return content[:end] + content[start:end] * self.random.choice((1, 2, 50)) + content[end:]

    def _insert(self, content: bytes) -> bytes:
        at = self._place(content)
        return content[:at] + self.random.choice(TOKENS) + content[at:]

    def _truncate(self, content: bytes) -> bytes:
        return content[: self._place(content)]

    def _splice(self, content: bytes) -> bytes:
        other = self.random.choice(self._samples)
        return content[: self._place(content)] + other[self._place(other) :]

    def _lines(self, content: bytes, change: Callable[[list[bytes], int], None]) -> bytes:
        lines = content.split(b"\n")
        change(lines, self.random.randrange(len(lines)))
        return b"\n".join(lines)

    def _line_twice(self, content: bytes) -> bytes:
        return self._lines(content, lambda lines, i: lines.insert(self.random.randrange(len(lines) + 1), lines[i]))

    def _line_less(self, content: bytes) -> bytes:
        return self._lines(content, lambda lines, i: lines.__delitem__(i))

    def _lines_swapped(self, content: bytes) -> bytes:
        def swap(lines: list[bytes], i: int) -> None:
            other = self.random.randrange(len(lines))
            lines[i], lines[other] = lines[other], lines[i]

        return self._lines(content, swap)

    def _field(self, content: bytes, value: Callable[[list[re.Match[bytes]]], bytes]) -> bytes:
        fields = list(_FIELD.finditer(content))
        if not fields:
            return self._insert(content)
        start, end = self.random.choice(fields).span()
        return content[:start] + value(fields) + content[end:]

    def _field_for_token(self, content: bytes) -> bytes:
        return self._field(content, lambda _: self.random.choice(TOKENS))

    def _field_for_field(self, content: bytes) -> bytes:
        return self._field(content, lambda fields: self.random.choice(fields)[0])

    def _json(self) -> bytes:
        """A document, or a line of a JSON lines file, with some values of another type, missing, or repeated."""
        lines = copy.deepcopy(self.random.choice(self._documents))
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self._change(self.random.choice(lines))
        return b"\n".join(map(_dumped, lines)) + b"\n" * (len(lines) > 1)

    def _change(self, document: Any) -> None:
        node = document
        while isinstance(node, (dict, list)) and node:
            key = self.random.choice(list(node)) if isinstance(node, dict) else self.random.randrange(len(node))
            if not isinstance(node[key], (dict, list)) or not node[key] or self.random.random() < 0.15:
                self._change_item(node, key)
                return
            node = node[key]

    def _change_item(self, node: Any, key: Any) -> None:
        kind = self.random.randrange(10)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[str(self.random.choice(VALUES))] = node.pop(key)
        elif kind == 2 and isinstance(node, list):
            node.insert(key, _copied(node[key]))
        elif kind == 3:
            node[key] = _nested(node[key], self.random.choice((1, 3, 70, 400)))
        elif kind == 4 and isinstance(node, dict):
            node[key] = _copied(self.random.choice(list(node.values())))
        else:
            node[key] = copy.deepcopy(self.random.choice(VALUES))


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except RecursionError:  # it was nested twice
        return value


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _parsed(sample: bytes) -> list[Any] | None:
    """The document of a sample, or those of its lines; None if it is not JSON."""
    for parts in ([sample], sample.splitlines()):
        try:
            documents = [json.loads(part) for part in parts]
        except ValueError:
            continue
        if documents and all(isinstance(document, (dict, list)) for document in documents):
            return documents
    return None


def _dumped(document: Any) -> bytes:
    try:
        return json.dumps(document).encode()
    except RecursionError:
        return b"[" * 1000
