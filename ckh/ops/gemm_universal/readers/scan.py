"""Finding the JSON objects of a log in a stream of it, however large; nothing is kept but the object that is open.

An object begins where a line does, or with its "name" in the middle of one, where outputs ran into each other. Braces
in strings do not count. An object that cannot be completed is dropped with a reason, and what came after its first line
is looked at again, so that it takes no other with it.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import IO

MOST_CHARACTERS = 1 << 20
MOST_DEPTH = 32

CUT_OFF = "with a JSON object that is cut off"
MALFORMED = "with a JSON object that is malformed"
ENDLESS = "with a JSON object that does not end within 1 MiB"
TOO_DEEP = "with a JSON object that is nested too deeply"

# A string, or a quote that begins one which does not end on its line, or a bracket.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|["{}\[\]]')
_BRACKET = re.compile(r"[{}\[\]]")
_CLOSER = {"{": "}", "[": "]"}
_CLOSERS = frozenset(_CLOSER.values())
_QUOTE = '"'
_NAMED = re.compile(r'\{\s*"name"\s*:')
# The tile engine ends with the best of what it has printed before.
_REPEATED = "best kernel instance"


class FoundKind(StrEnum):
    """The kinds of finds: the text of an object, the reason why one was dropped, or a line outside of objects."""

    OBJECT = "object"
    DROPPED = "dropped"
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Found:
    """A find, and the line that it begins on, counted from 1."""

    kind: FoundKind
    line: int
    text: str


class _Line(NamedTuple):
    number: int
    text: str


class _Open:
    """The object that is open: its lines, and the brackets that are to be closed."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.size = 0
        self._closers: list[str] = []

    def admits_object(self) -> bool:
        """True if an object can stand where the next line begins."""
        last = next((text[-1] for line in reversed(self.lines) if (text := line.text.rstrip())), "")
        return last in {":", "["} or (last == "," and self._closers[-1] == "]")

    def feed(self, line: _Line) -> tuple[int, str]:
        """Take a line; where in it the object ends, else -1, and the reason if it is to be dropped."""
        self.lines.append(line)
        self.size += len(line.text)
        # What a line without brackets has wrong, the JSON parser finds.
        for match in _TOKEN.finditer(line.text) if _BRACKET.search(line.text) else ():
            found = match[0]
            if found in _CLOSER:
                self._closers.append(_CLOSER[found])
                if len(self._closers) > MOST_DEPTH:
                    return -1, TOO_DEEP
            elif found == _QUOTE or (found in _CLOSERS and self._closers.pop() != found):
                return -1, MALFORMED
            elif not self._closers:
                return match.end(), ""
        return -1, ENDLESS if self.size > MOST_CHARACTERS else ""


def read_lines(file: IO[bytes], see: Callable[[bytes], None]) -> Iterator[str]:
    """The lines of a stream, those that are longer than an object may be in pieces; `see` is shown every byte."""
    rest = b""
    while piece := file.readline(MOST_CHARACTERS):
        see(piece)
        piece = rest + piece
        rest = b""
        if not piece.endswith(b"\n") and 0 < (end := piece.rfind(b"}") + 1) < len(piece) <= MOST_CHARACTERS:
            piece, rest = piece[:end], piece[end:]
        yield piece.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


class Scanner:
    """The objects of a log's lines, and those lines outside of objects that `is_mark` wants.

    A mark also ends an object that is open. It is called only for lines that do not begin like a part of one.
    """

    def __init__(self, lines: Iterable[str], is_mark: Callable[[str], bool]) -> None:
        self._lines = iter(lines)
        self._is_mark = is_mark
        self._number = 0
        self._again: deque[_Line] = deque()
        self._open: _Open | None = None
        self._hanging = False

    def __iter__(self) -> Iterator[Found]:
        while True:
            line = self._next()
            if line is not None:
                found = self._outside(line) if self._open is None else self._inside(self._open, line)
            elif self._open is not None:
                found = self._drop(self._open, CUT_OFF)
            else:
                return
            if found is not None:
                yield found

    def _next(self) -> _Line | None:
        if self._again:
            return self._again.popleft()
        text = next(self._lines, None)
        if text is None:
            return None
        self._number += 1
        return _Line(self._number, text.removeprefix("\ufeff") if self._number == 1 else text)

    def _outside(self, line: _Line) -> Found | None:
        text = line.text
        stripped = text.lstrip()
        hanging, self._hanging = self._hanging, False
        if stripped.startswith("{"):
            return self._begin(line)
        if hanging and stripped.startswith('"name"'):
            return self._begin(_Line(line.number, "{" + text))
        if "{" in text and _REPEATED not in text:
            if match := _NAMED.search(text):
                return self._begin(_Line(line.number, text[match.start() :]))
            self._hanging = text.rstrip().endswith("{")
        return Found(FoundKind.LINE, line.number, text) if self._is_mark(text) else None

    def _begin(self, line: _Line) -> Found | None:
        self._open = _Open()
        return self._take(self._open, line)

    def _inside(self, opened: _Open, line: _Line) -> Found | None:
        stripped = line.text.lstrip()
        if stripped.startswith("{"):
            is_cut_off = not opened.admits_object()
        else:
            is_cut_off = not stripped.startswith(('"', "}", "]")) and self._is_mark(line.text)
        if is_cut_off:
            self._again.appendleft(line)
            return self._drop(opened, CUT_OFF)
        return self._take(opened, line)

    def _take(self, opened: _Open, line: _Line) -> Found | None:
        end, reason = opened.feed(line)
        if reason:
            return self._drop(opened, reason)
        if end < 0:
            return None
        self._open = None
        text = "".join(one.text for one in opened.lines[:-1]) + line.text[:end]
        rest = line.text[end:].lstrip(" \t\r\n,;")
        if rest:
            self._again.appendleft(_Line(line.number, rest))
        return Found(FoundKind.OBJECT, opened.lines[0].number, text)

    def _drop(self, opened: _Open, reason: str) -> Found:
        self._open = None
        if reason in {CUT_OFF, ENDLESS}:
            # What was read as a part of it may have been objects.
            self._again.extendleft(reversed(opened.lines[1:]))
        return Found(FoundKind.DROPPED, opened.lines[0].number, reason)
