"""Sentences in lines that fit a terminal, with commands that can be pasted."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_COLUMNS = 80  # where there is no terminal
_LEAST_COLUMNS = 40

# A command to copy, which reaches to the end of its line, and its words, an option with its value.
_COMMAND = re.compile(r"(?:^|(?<=: )|(?<=  ))(?:ckh [a-z]+|printf) ")
_SHELL_WORD = re.compile(r"(?:--[a-z-]+ (?=[^-&\s]))?(?:'[^']*'|\S)+")
_GOES_ON = " \\"
_LEAD = re.compile(r"(?:\S+ )?\S* {2,}")  # "model    ", "the model  ", or spaces

_whole = False  # whether text is as wide as it is


@contextmanager
def whole_names(*, is_whole: bool) -> Iterator[None]:
    """Leave tables and sentences as wide as they are while the context lasts, if that is wanted."""
    global _whole  # noqa: PLW0603 - one for the process, as its stdout
    before, _whole = _whole, is_whole
    try:
        yield
    finally:
        _whole = before


def one_of(name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """A hint with the known names, after the one that is spelled most alike.

    Args:
        name: the unknown name.
        known: names to list.
        also: further names, which are suggested only.
    """
    from difflib import get_close_matches

    names = list(known)
    listed = "one of " + ", ".join(names)
    alike = get_close_matches(name.lower(), [*names, *also], n=1)
    return f"did you mean {alike[0]}? {listed}" if alike else listed


def room(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal that a stream is, stdout by default, or else 80; None, any, within `whole_names`."""
    if _whole:
        return None
    try:
        descriptor = (stream or sys.stdout).fileno()
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(descriptor).columns)
    except (OSError, ValueError, AttributeError):
        columns = 0
    return max(columns or _COLUMNS, _LEAST_COLUMNS)


def prose(text: str, indent: int = 0, stream: TextIO | None = None) -> str:
    """Sentences in lines that fit the terminal, or else 80 columns; within `whole_names` they stay in one.

    A word that is longer, a path or a name, is a line of its own and stays whole. The lines of a command at the end
    (`ckh …`) end with a backslash, so that it can be pasted as it is.

    Args:
        text: what the first line begins with, and all that follows.
        indent: spaces before the further lines.
        stream: where it is printed, stdout by default.
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
        lines += [*(f"{one}{_GOES_ON}" for one in (first, *others[:-1])), *others[-1:]] if others else [first]
    return head + ("\n" + " " * indent).join(lines)


def shell_word(text: object) -> str:
    """A word of a command to copy: quoted where a shell needs it; what cannot be printed, in escapes of its bytes."""
    import shlex

    word = str(text)
    if word.isprintable() and "'" not in word:
        return shlex.quote(word)
    escaped = re.sub(rb"[^\w/.+-]", lambda found: b"\\x%02x" % ord(found[0]), os.fsencode(word))
    return f"$'{escaped.decode()}'"


def paragraphs(text: str) -> str:
    """Lines as `prose`, the further ones of each as far to the right as its second column, or its beginning."""
    return "\n".join(prose(line, len(found[0]) if (found := _LEAD.match(line)) else 0) for line in text.split("\n"))


def filled(words: Sequence[str], width: int) -> list[str]:
    """Words in lines; one that is longer is a line of its own."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
