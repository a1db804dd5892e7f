"""Wrap sentences to the terminal, with commands that can be pasted."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_COLUMNS = 80  # without a terminal
_LEAST_COLUMNS = 40

# A command to copy, which extends to the end of its line, and its words; an option is joined to its value.
_COMMAND = re.compile(r"(?:^|(?<=: )|(?<=  ))(?:ckh [a-z]+|printf) ")
_SHELL_WORD = re.compile(r"(?:--[a-z-]+ (?=[^-&\s]))?(?:'[^']*'|\S)+")
_GOES_ON = " \\"
_LEAD = re.compile(r"(?:\S+ )?\S* {2,}")  # "model    ", "the model  ", or spaces

_whole = False  # whether text is not wrapped or shortened


@contextmanager
def whole_names(*, is_whole: bool) -> Iterator[None]:
    """Disable wrapping and shortening of tables and sentences for the duration of the context, if requested."""
    global _whole  # noqa: PLW0603 - one for the process, as its stdout
    before, _whole = _whole, is_whole
    try:
        yield
    finally:
        _whole = before


def replacement(name: str) -> str:
    """Replacement of a name or an option that ckh no longer has (`removed.json`); empty for any other."""
    import json
    from pathlib import Path

    removed: dict[str, str] = json.loads(Path(__file__).with_name("removed.json").read_bytes())
    return removed.get(name, "")


def one_of(name: object, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """A hint with the known names, after the most similar one; for a removed name, its replacement.

    Names in `also` are suggested, but not listed.
    """
    from difflib import get_close_matches

    if instead := replacement(str(name)):
        return instead
    names = list(known)
    listed = "one of " + ", ".join(names)
    alike = get_close_matches(str(name).lower(), [*names, *also], n=1)
    return f"did you mean {alike[0]}? {listed}" if alike else listed


def room(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal of a stream, stdout by default, or else 80; None (unlimited) within `whole_names`."""
    if _whole:
        return None
    try:
        descriptor = (stream or sys.stdout).fileno()
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(descriptor).columns)
    except (OSError, ValueError, AttributeError):
        columns = 0
    return max(columns or _COLUMNS, _LEAST_COLUMNS)


def prose(text: str, indent: int = 0, stream: TextIO | None = None) -> str:
    """Wrap sentences to the terminal, or else to 80 columns; within `whole_names` they are not wrapped.

    A longer word, such as a path, is a line of its own and not broken. The lines of a command at the end (`ckh …`) end
    with a backslash, so that it can be pasted.
    """
    columns = room(stream)
    if columns is None or len(text) <= columns:
        return text
    width = columns - indent
    head, rest = text[:indent], text[indent:]
    command = _COMMAND.search(rest)
    said = rest if command is None else rest[: command.start()]
    lines = filled(said.split(), width)
    if command is not None:
        words = _SHELL_WORD.findall(rest[command.start() :])
        begun = lines.pop() + " " if lines else ""
        first, *others = filled([begun + words[0], *words[1:]], width - len(_GOES_ON))
        lines += [*(f"{line}{_GOES_ON}" for line in (first, *others[:-1])), *others[-1:]] if others else [first]
    return head + ("\n" + " " * indent).join(lines)


def shell_word(text: object) -> str:
    """A word of a command to copy: quoted for the shell if needed; unprintable bytes are escaped."""
    import shlex

    word = str(text)
    if word.isprintable() and "'" not in word:
        return shlex.quote(word)
    escaped = re.sub(rb"[^\w/.+-]", lambda matched: b"\\x%02x" % ord(matched[0]), os.fsencode(word))
    return f"$'{escaped.decode()}'"


def paragraphs(text: str) -> str:
    """Wrap lines as `prose`, with continuation lines indented to the second column of each, or its beginning."""
    return "\n".join(prose(line, len(matched[0]) if (matched := _LEAD.match(line)) else 0) for line in text.split("\n"))


def filled(words: Sequence[str], width: int) -> list[str]:
    """Wrap words; a longer word is a line of its own."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
