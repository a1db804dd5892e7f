"""Notes, warnings and errors for the person, all on stderr; stdout is for results."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from ckh.text.prose import prose

if TYPE_CHECKING:
    from ckh.errors import CkhError

_COLOURS = {"error": "31;1", "warning": "33;1", "hint": "36"}
# Control characters, what turns the direction of text round, and what is not a character (of a path that is no UTF-8).
_HIDDEN = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")  # but line feeds
_MOST_CHARACTERS = 2000


def printable(text: str) -> str:
    """The text on one line and as it is: what would steer a terminal is written as it is escaped in Python.

    What is printed may come from a stranger's file. Of a text that is longer than a screen, the beginning and the end.
    """
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = f"{text[:half]} … {text[-half:]}"
    return text if text.isprintable() else re.sub(_HIDDEN, _escaped, text)


def one_line(text: str) -> str:
    """A text of a result on one line: line feeds are escaped too, bytes that are not text are kept."""
    return text if text.isprintable() else _STEERING.sub(_escaped, text).replace("\n", "\\n")


class _Result:
    """Whether the command that runs has written a result."""

    is_begun = False


def begin_result() -> None:
    """Note that a command begins, which has written no result yet."""
    _Result.is_begun = False


def has_result() -> bool:
    """True if the command has written a result, or a part of it."""
    return _Result.is_begun


def emit(text: str) -> None:
    """Write a result to stdout; characters that would steer a terminal are escaped, as files of strangers are shown."""
    _Result.is_begun = True
    sys.stdout.write(_STEERING.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def use_colour() -> bool:
    """True if stderr gets colours: NO_COLOR wins, then FORCE_COLOR, then whether it is a terminal."""
    match os.environ.get("NO_COLOR"), os.environ.get("FORCE_COLOR"):
        case (str(no), _) if no:
            return False
        case (_, str(force)) if force:
            return True
        case _:
            return sys.stderr.isatty()


def note(text: str) -> None:
    """Print a progress note."""
    for line in text.split("\n"):
        _print_line(line)


def warn(text: str, code: str) -> None:
    """Print a warning with its code, one of `ckh.errors.WARNING_CODES`."""
    _print_line(text, "warning", code)


def print_error(error: CkhError) -> None:
    """Print an error with its code, and its hint on a second line."""
    _print_line(error.message, "error", error.code)
    if error.hint:
        _print_line(error.hint, "hint")


def _print_line(text: str, kind: str = "", code: str = "") -> None:
    """Print `KIND: TEXT [CODE]` to stderr, wrapped to the width of a terminal."""
    label = f"{kind}: " if kind else ""
    line = label + printable(text) + (f" [{code}]" if code else "")
    said = prose(line, stream=sys.stderr) if sys.stderr.isatty() else line
    if kind and use_colour():
        said = f"\x1b[{_COLOURS[kind]}m{kind}:\x1b[0m {said[len(label) :]}"
    sys.stderr.write(said + "\n")
