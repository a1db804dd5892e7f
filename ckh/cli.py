"""The full command line; commands are imported when called."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from ckh.boundary import JSON_OPTION, guarded
from ckh.commands.help import HelpGroup
from ckh.errors import EXIT_CODE_MEANING, ExitCode, UsageError
from ckh.requested import as_option
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Subcommand -> its line of help. `ckh.commands.<name>.register(app)` adds the command itself.
COMMANDS: dict[str, str] = {
    "tune": "Tune the kernels of a model: shapes, measuring, training, export.",
    "shapes": "List the problems of a model, module or log, weighted.",
    "bench": "Measure kernels on many problems.",
    "convert": "Turn journals and AMD's benchmark files into a Parquet dataset.",
    "train": "Learn models from a dataset.",
    "evaluate": "Score a model on measured problems.",
    "predict": "Rank all kernels for a problem.",
    "explain": "Show where a kernel's clocks go, by its machine code.",
    "search": "Find kernels beyond the candidates, by a model or by measuring.",
    "validate": "Check choices against the best, a new model against an old one.",
    "report": "Draw measurements and models as a page, or as SVG and PNG.",
    "export": "Write models as C, and choices for AITER and PyTorch.",
    "doctor": "Show what this machine offers and what ckh found.",
    "help": "Show a page of the documentation.",
}

_BY_TEXT = ("ckh search measure", "ckh explain")  # commands that take a problem by its text, and no options of sizes
_NUMBERS = {"integer": "a whole number", "number": "a number"}
_NO_NUMBER = re.compile(r"^invalid value for '(--[\w-]+)'.* valid (integer|number).*")
COMPLETION_VARIABLE = "_CKH_COMPLETE"  # Typer's, derived from the name of the program
_TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")  # set by Typer's shell scripts to the command line
_WRONG_USAGE: type[Exception] = typer.BadParameter.__bases__[0]  # Click's UsageError, wherever Typer imports it from
_EPILOG = "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in EXIT_CODE_MEANING.items()) + "."


def build_app(requested: Sequence[str]) -> typer.Typer:
    """Build the application with the commands in `requested` loaded and the others as one line of help each."""
    app = typer.Typer(
        name="ckh",
        cls=HelpGroup,
        help="Finds the fastest AMD Composable Kernel Tile kernel for a GEMM or a grouped convolution.",
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help", "--help-all"], "token_normalize_func": str.lower},
    )
    app.callback()(_main_options)
    for name, line in COMMANDS.items():
        if name in requested:
            importlib.import_module(f"ckh.commands.{name}").register(app)
            _complete_commands(app)
        else:
            app.command(name=name, help=line)(_not_loaded)
    return app


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    return guarded(lambda: dispatch(args), as_json=JSON_OPTION in args)


def dispatch(args: Sequence[str]) -> int:
    """Run one command line, without the error boundary.

    Typer's own boundary is not used: it exits with 1 when the reader of the output has closed it.
    """
    if COMPLETION_VARIABLE in os.environ:
        return _complete()
    named = [arg for arg in args if not arg.startswith("-")][:1]
    command: Any = typer.main.get_command(build_app(named))
    try:
        if named and args[0] == named[0] and named[0] in command.commands:
            # Without options before the command, the main options are not parsed: this avoids help's slowest imports.
            whole = command.context_class(command, info_name="ckh", **command.context_settings)
            command = command.commands[named[0]]
            context = command.make_context(named[0], list(args[1:]), parent=whole)
        else:
            context = command.make_context("ckh", list(args))
        with context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except _WRONG_USAGE as error:
        return _refuse_usage(error, " ".join(["ckh", *named]))
    return int(ExitCode.OK)


def _refuse_usage(error: Any, command: str) -> int:
    """Show the help if called without arguments, else raise a usage error as an error of ckh."""
    if (misplaced := _misplaced(error)) is not None:
        raise misplaced from error
    said = error.format_message().removesuffix(".")
    if "\n" in said:
        error.show()
        return int(ExitCode.USAGE)
    place = command if error.ctx is None else error.ctx.command_path
    said = said[0].lower() + said[1:].replace("Value error, ", "")
    said = re.sub(_NO_NUMBER, lambda found: f"{found[1]} must be {_NUMBERS[found[2]]}", said)
    raise UsageError(said, f"see {place} --help") from error


def _misplaced(error: Any) -> UsageError | None:
    """Error for an option that belongs to a subcommand or has its name, or that was removed."""
    option = getattr(error, "option_name", None)
    if option is None or error.ctx is None:
        return None
    place, said = error.ctx.command_path, f"{error.ctx.command_path} has no {option}"
    if instead := _instead(place, option):
        return UsageError(f"{said} any more", instead, code="inapplicable-option")
    for name, command in getattr(error.ctx.command, "commands", {}).items():
        if option == f"--{name}" or any(option in (*param.opts, *param.secondary_opts) for param in command.params):
            return UsageError(said, f"use {place} {name}, see {place} {name} --help", code="inapplicable-option")
    return None


def _instead(place: str, option: str) -> str:
    """Return the replacement of a removed option of a command, or an empty text if it was not removed."""
    from ckh.ops import all_requested
    from ckh.text.prose import replacement

    sizes = {as_option(size.name) for part in all_requested().values() for size in part.options}
    if place in _BY_TEXT and option in {"--op", "--variant", "--dtype", *sizes}:
        return f"name the problem by its text, as ckh predict --why prints it: {place} PROBLEM"
    return replacement(f"{place} {option}")


def _complete() -> int:
    """Answer a shell's request to complete a command line."""
    words = " ".join(os.environ.get(name, "") for name in _TYPED).split()
    try:
        build_app([word for word in words if word in COMMANDS][:1])(args=[], prog_name="ckh")
    except SystemExit as stop:
        return int(stop.code or 0)
    return int(ExitCode.OK)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"ckh {__version__}")
        raise typer.Exit


def _main_options(
    _version: bool = typer.Option(
        False,
        "--version",
        help="Show the version and exit.",
        is_eager=True,
        callback=_print_version,
    ),
) -> None:
    pass


def _complete_commands(app: typer.Typer) -> None:
    """Add the option --wide, and help in panels, to all loaded commands of an application."""
    from ckh.commands.help import HelpCommand, HelpGroup

    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.cls = HelpGroup
            _complete_commands(group.typer_instance)
            own = group.typer_instance.registered_callback
            if own is not None and own.callback is not None:
                own.callback = _with_wide(own.callback)
    for registered_command in app.registered_commands:
        if registered_command.callback is not None and registered_command.callback is not _not_loaded:
            registered_command.cls, registered_command.callback = HelpCommand, _with_wide(registered_command.callback)


def _with_wide(command: Callable[..., Any]) -> Callable[..., Any]:
    from ckh.ops import canonical_options
    from ckh.text.prose import whole_names

    def widened(*, wide: bool, **values: Any) -> Any:
        with whole_names(is_whole=wide):
            return command(**canonical_options(values))

    if "wide" in inspect.signature(command).parameters:
        return command
    types = get_type_hints(command)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[parameter.name])
        for parameter in inspect.signature(command).parameters.values()
    ]
    option = typer.Option(False, "--wide", help="Do not shorten names and tables to the terminal's width.")
    parameters = [*own, inspect.Parameter("wide", inspect.Parameter.KEYWORD_ONLY, default=option, annotation=bool)]
    widened.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    widened.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    widened.__doc__ = command.__doc__
    return widened


def _not_loaded() -> None:
    raise AssertionError("a command that was not requested ran")
