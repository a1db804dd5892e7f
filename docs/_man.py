"""Write the manual page of ckh, `docs/ckh.1`, from the help of its commands: python docs/_man.py."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.cli import COMMANDS, build_app, run
from ckh.errors import EXIT_CODE_MEANING
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).with_name("ckh.1")


def helps(option: str = "--help") -> Iterator[tuple[tuple[str, ...], str]]:
    """Words of each command and subcommand, and its help."""
    for name in COMMANDS:
        command = typer.main.get_command(build_app([name])).commands[name]  # type: ignore[attr-defined]
        for words in ((name,), *((name, inner) for inner in getattr(command, "commands", {}))):
            printed = io.StringIO()
            with redirect_stdout(printed):
                run([*words, option])
            yield words, printed.getvalue()


def manual() -> str:
    """The page in the macros of man(7), with lines of 76 columns."""
    os.environ["COLUMNS"] = "76"
    lines = [
        f'.TH CKH 1 "" "ckh {__version__}" "User Commands"',
        ".SH NAME",
        "ckh \\- find the fastest AMD Composable Kernel Tile kernel",
        ".SH SYNOPSIS",
        ".B ckh",
        ".I COMMAND",
        "[OPTIONS] [ARGUMENTS]",
        ".SH COMMANDS",
    ]
    for words, text in helps("--help-all"):
        lines += [f".SS ckh {' '.join(words)}", ".nf", *map(_escaped, text.strip().splitlines()), ".fi"]
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXIT_CODE_MEANING.items():
        lines += [".TP", str(int(code)), _escaped(meaning)]
    return "\n".join([*lines, ".SH SEE ALSO", "ckh help lists the guides that are installed.", ""])


def _escaped(line: str) -> str:
    """A line of text: backslashes, hyphens as they are typed, and no macro at its start."""
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    PAGE.write_text(manual(), encoding="utf-8")
