"""What is said to the person: notes, warnings and errors, all on stderr; stdout is for results."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckh.errors import CkhError

_COLOURS = {"error": "31;1", "warning": "33;1", "hint": "36"}


def use_colour() -> bool:
    """Whether stderr gets colours: NO_COLOR wins, then FORCE_COLOR, then whether it is a terminal."""
    match os.environ.get("NO_COLOR"), os.environ.get("FORCE_COLOR"):
        case (str(no), _) if no:
            return False
        case (_, str(force)) if force:
            return True
        case _:
            return sys.stderr.isatty()


def note(text: str) -> None:
    """Say something in passing."""
    sys.stderr.write(text + "\n")


def warn(text: str) -> None:
    """Say that something may be wrong."""
    sys.stderr.write(f"{_label('warning')} {text}\n")


def print_error(error: CkhError) -> None:
    """Say what is wrong in one line, and in a second what to do about it."""
    sys.stderr.write(f"{_label('error')} {error.message}\n")
    if error.hint:
        sys.stderr.write(f"{_label('hint')} {error.hint}\n")


def _label(kind: str) -> str:
    return f"\x1b[{_COLOURS[kind]}m{kind}:\x1b[0m" if use_colour() else f"{kind}:"
