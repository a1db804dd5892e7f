"""Help of commands, with options in panels, and `ckh help`: documentation pages in the terminal.

Panels have the options of the requested operation. --help-all has the less common ones and all text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ckh.commands._common import examples
from ckh.errors import UsageError, codes
from ckh.files.paths import data_dir
from ckh.ops import DEFAULT_OPERATION, all_requested, meant_operation, operation_name
from ckh.text.log import emit
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.requested import SizeOption

PROBLEM, MODEL, DATA, AITER, MEASURING = "Problem", "Model", "Data", "AITER", "Measuring"
OTHER = "Options"
ALL = "--help-all"
_LESS_COMMON = "+"  # in front of options that --help leaves out
# Panels in order, with the options that are less common, or do not set one (`rich_help_panel`).
PANELS: dict[str, list[str]] = json.loads(Path(__file__).with_name("panels.json").read_bytes())
_PANEL_OF = {option.removeprefix(_LESS_COMMON): panel for panel, options in PANELS.items() for option in options}
_LEFT_OUT = {option[1:] for options in PANELS.values() for option in options if option.startswith(_LESS_COMMON)}
_EXAMPLES = 6  # lines of examples in --help, with their heading
_OF_CONVOLUTIONS = ("variant", "ndim", "rule_set", "split_k", "pad_channels")


class _Panels:
    """Formats the options of a command in panels."""

    params: list[Any]
    no_args_is_help: bool
    help: str | None
    epilog: str | None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; for help, hide the options of other operations, and what is for --help-all only."""
        if not set(ctx.help_option_names).isdisjoint(args) or (self.no_args_is_help and not args):
            _show_operation(self.params, args)
            if ALL not in args:
                self.help = (self.help or "").partition("\n\n")[0]
                shown = (self.epilog or "").split("\n")[:_EXAMPLES]
                self.epilog = "\n".join(shown[:-1] if shown[-1].endswith("\\") else shown)
                for param in self.params:
                    param.hidden |= param.name in _LEFT_OUT
        return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Format arguments, the panels of options, and the subcommands of a group."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{name: [] for name in PANELS}}
        for get_param in self.get_params(ctx):  # type: ignore[attr-defined]
            if (row := get_param.get_help_record(ctx)) is not None:
                if ALL in get_param.opts:  # whose names Click has in any order
                    row = f"-h, --help, {ALL}", "Show this message, or all options, and exit."
                panels[panel_of(get_param)].append(
                    (row[0].replace(" range>", ">").replace("<list[Path]>", "<path>"), row[1])
                )
        for name, rows in panels.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)


class HelpCommand(_Panels, TyperCommand):
    """A command with its options in panels."""


class HelpGroup(_Panels, TyperGroup):
    """A group of commands with its own options in panels."""


def panel_of(option: Any) -> str:
    """The panel of an option, or of an argument."""
    if option.param_type_name == "argument":
        return "Arguments"
    return option.rich_help_panel or _PANEL_OF.get(option.name, OTHER)


def _show_operation(params: list[Any], args: Sequence[str]) -> None:
    """Hide the options of other operations than the one given or implied by a command line; its sizes come first."""
    parts = all_requested()
    op = operation_name(_named(args)) or meant_operation([arg[2:].replace("-", "_") for arg in args], parts)
    if (part := parts.get(op or DEFAULT_OPERATION)) is None:
        return
    sizes: dict[str, SizeOption] = {}
    for option in (option for part in parts.values() for option in part.options):
        sizes.setdefault(option.name, option)
    own = {option.name: option for option in part.options if option.kind is sizes[option.name].kind}
    for param in params:
        is_of_problem = param.rich_help_panel == PROBLEM
        if is_of_problem and param.name in own:
            param.help = own[param.name].sentence
        elif is_of_problem and param.name == "dtype" and part.default_dtype:
            param.help = f"Element type.  [{part.default_dtype}]"
        elif is_of_problem and param.name in sizes:
            param.hidden = True
        elif param.name in _OF_CONVOLUTIONS:
            param.hidden = not part.has_directions
    places = {name: place for place, name in enumerate(["op", *own])}
    params.sort(key=lambda item: places.get(item.name, len(places)) if item.rich_help_panel == PROBLEM else len(places))


def _named(args: Sequence[str]) -> str:
    """Value of --op on a command line."""
    for arg, following in zip(args, (*args[1:], ""), strict=False):
        name, is_joined, value = arg.partition("=")
        if name == "--op":
            return value if is_joined else following
    return ""


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
