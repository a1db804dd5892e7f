"""Notes, warnings and errors for the user, on stderr; stdout is for results."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckh.text.prose import prose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from ckh.errors import CkhError

# The basis of a result. Texts state it in words too, since colours may be off.
MEASURED, BORROWED, ESTIMATED = "measured", "borrowed", "estimated"
_COLOURS = {"error": "31;1", "warning": "33;1", "hint": "36", MEASURED: "32", BORROWED: "33", ESTIMATED: "35"}
# Control characters, marks of text direction, and surrogates, which stand for undecodable bytes of a path.
_HIDDEN = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")  # except line feeds
_MOST_CHARACTERS = 2000
_BEGIN, _END, _RESET = "\x0e", "\x0f", "\x1b[0m"  # around texts that `painted` marks, and after coloured ones
_BY_LETTER = {basis[0]: _COLOURS[basis] for basis in (MEASURED, BORROWED, ESTIMATED)}


def printable(text: str) -> str:
    """Text on a single line; terminal control characters are escaped as in Python.

    The text may come from an untrusted file. Text longer than a screen is shortened in the middle.
    """
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = f"{text[:half]} … {text[-half:]}"
    return text if text.isprintable() else re.sub(_HIDDEN, _escaped, text)


def markdown(text: str) -> str:
    """Text on a single line that Markdown and HTML show as it is, also in a cell of a table."""
    return re.sub(r"[\\`*<>|\[\]~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", printable(text))


def one_line(text: str) -> str:
    """Text of a result on a single line: line feeds are escaped too, undecodable bytes are kept."""
    return text if text.isprintable() else _STEERING.sub(_escaped, text).replace("\n", "\\n")


class _Result:
    """Whether the command that runs has written a result, and its texts, if they are recorded."""

    is_begun = False
    has_warned = False
    recorded: list[str] | None = None
    notes: frozenset[str] = frozenset()  # printed by `note_once`
    left_out: dict[str, int] | None = None  # entries of files by reason; None: no command runs


def begin_result() -> None:
    """Record that a command begins, without a result, note or warning yet."""
    _Result.is_begun, _Result.has_warned, _Result.notes, _Result.left_out = False, False, frozenset(), {}


def has_result() -> bool:
    """True if the command has written a result, or a part of it."""
    return _Result.is_begun


def has_warned() -> bool:
    """True if the command has printed a warning."""
    return _Result.has_warned


@contextmanager
def recorded_results() -> Iterator[list[str]]:
    """Collect the texts that `emit` is given while the context lasts."""
    texts: list[str] = []
    _Result.recorded = texts
    try:
        yield texts
    finally:
        _Result.recorded = None


def emit(text: str) -> None:
    """Write a result to stdout, as `written`, with colours on a terminal or where FORCE_COLOR is set."""
    _Result.is_begun = True
    if _Result.recorded is not None:
        _Result.recorded.append(text)
    sys.stdout.write(written(text, in_colour=use_colour(sys.stdout)))


def written(text: str, *, in_colour: bool = False) -> str:
    """Escape the characters of a result that would control a terminal: its texts may come from untrusted files.

    With `in_colour`, texts that `painted` marks are coloured.
    """
    first, *rest = text.split(_BEGIN)
    return _STEERING.sub(_escaped, first) + "".join(_written_part(part, in_colour=in_colour) for part in rest)


def _written_part(part: str, *, in_colour: bool) -> str:
    """Format the text after a mark of `painted`; such a mark in an untrusted text is escaped."""
    colour = _BY_LETTER.get(part[:1])
    inside, end, after = part[1:].partition(_END)
    if colour is None or not end or "\n" in inside:
        return _STEERING.sub(_escaped, _BEGIN + part)
    inside, after = _STEERING.sub(_escaped, inside), _STEERING.sub(_escaped, after)
    return f"\x1b[{colour}m{inside}{_RESET}{after}" if in_colour else inside + after


def painted(text: str, basis: str) -> str:
    """Mark the lines of a text, which `emit` then colours by their basis: MEASURED, BORROWED or ESTIMATED."""
    return "\n".join(f"{_BEGIN}{basis[0]}{line}{_END}" for line in text.split("\n"))


def _escaped(matched: re.Match[str]) -> str:
    return matched[0].encode("unicode_escape").decode()


def use_colour(stream: TextIO | None = None) -> bool:
    """True if a stream, stderr by default, gets colours: NO_COLOR wins, then FORCE_COLOR, then if it is a terminal."""
    match os.environ.get("NO_COLOR"), os.environ.get("FORCE_COLOR"):
        case (str(no), _) if no:
            return False
        case (_, str(force)) if force:
            return True
        case _:
            return (stream or sys.stderr).isatty()


def note(text: str) -> None:
    """Print a progress note."""
    for line in text.split("\n"):
        _print_line(line)


def note_once(text: str) -> None:
    """Print a progress note, unless this command has printed it."""
    if text and text not in _Result.notes:
        _Result.notes |= {text}
        note(text)


def notes() -> frozenset[str]:
    """Notes that `note_once` printed since the command began."""
    return _Result.notes


def warn(text: str, code: str) -> None:
    """Print a warning with its code, one of `ckh.errors.codes`."""
    _Result.has_warned = True
    _print_line(text, "warning", code)


def warn_left_out(where: str, reason: str, count: int) -> None:
    """Print how many entries of a file are left out and why, and record it for the command's JSON document."""
    at = f"{where}: " if where else ""
    warn(f"{at}left out {count}: {reason}", "left-out")
    if _Result.left_out is not None:
        key = at + reason
        _Result.left_out[key] = _Result.left_out.get(key, 0) + count


def left_out() -> dict[str, int]:
    """Entries that `warn_left_out` counted since the command began, by file and reason."""
    return dict(_Result.left_out or {})


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
