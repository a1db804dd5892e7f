"""`ckh help`: documentation pages in the terminal."""

from __future__ import annotations

import sys

import typer

from ckh.commands._common import examples
from ckh.errors import UsageError, codes
from ckh.files.paths import data_dir
from ckh.text.log import emit
from ckh.text.prose import one_of

_HELP = """Show a page of the documentation; without a topic, list the pages.

At a terminal a page is laid out for its width; elsewhere it is printed as Markdown, as it is written.
"""

_CODES_TITLE = "Codes of errors and warnings"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="help", help=_HELP, epilog=examples("ckh help", "ckh help first-hour", "ckh help codes | less"))(
        show
    )


def show(
    context: typer.Context,
    topic: str = typer.Argument("", metavar="TOPIC", help="Name of a page.", show_default=False),
) -> None:
    """Print a page, or the list of pages."""
    pages = {path.stem: path for path in sorted(data_dir("docs").glob("*.md"))}
    if not topic:
        first_lines = {name: path.read_text(encoding="utf-8").partition("\n")[0] for name, path in pages.items()}
        titles = {"codes": _CODES_TITLE} | {name: line.strip("# ") for name, line in first_lines.items()}
        width = max(map(len, titles))
        emit("Pages:\n" + "".join(f"  {name:<{width}}  {title}\n" for name, title in sorted(titles.items())))
    elif topic == "codes":
        _print_page(_codes_page())
    elif topic in pages:
        _print_page(pages[topic].read_text(encoding="utf-8"))
    else:
        commands = getattr(context.find_root().command, "commands", ())
        hint = f"see ckh {topic} --help" if topic in commands else one_of(topic, pages)
        raise UsageError(f"unknown page {topic!r}", hint, code="unknown-name")


def _codes_page() -> str:
    """The codes of errors and of warnings with their meanings, in Markdown."""
    parts = [f"# {_CODES_TITLE}\n"]
    for heading, meanings in codes().items():
        rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in meanings.items())
        parts.append(f"## {heading.capitalize()}\n\n| code | meaning |\n|---|---|\n{rows}")
    return "\n".join(parts)


def _print_page(text: str) -> None:
    if not sys.stdout.isatty():
        emit(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(highlight=False).print(Markdown(text))
