"""The command line as a whole: help, version, errors and exit codes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer

from ckh import __version__
from ckh.cli import COMMANDS, build_app, run
from ckh.errors import EXIT_CODE_MEANING, ExitCode
from ckh.ops import all_requested, operation, operation_names
from ckh.requested import as_option
from tests.refusals import expect_error

ALL = [
    *([name] for name in COMMANDS),
    *(["validate", name] for name in ("oracle", "compare", "selection", "kernels")),
    *(["search", name] for name in ("measure", "set")),
]


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """`ckh --help` lists all commands and the meaning of each exit code."""
    assert run(["--help"]) == ExitCode.OK
    text = " ".join(capsys.readouterr().out.split())
    assert all(name in text for name in COMMANDS)
    assert all(f"{code.value} {meaning}" in text for code, meaning in EXIT_CODE_MEANING.items())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command's help shows its usage."""
    assert run([name, "--help"]) == ExitCode.OK
    assert f"ckh {name}" in capsys.readouterr().out.split("Examples:")[-1]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_help_fits_80_columns(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No line of a command's help is wider, and a wrapped example is a single shell command."""
    assert run([*command, "--help-all"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = "\n".join(lines[lines.index("  Examples:") + 1 :])
    calls = [shlex.split(call) for call in shown.replace("\\\n", "").splitlines()]
    assert calls
    assert all(call[0] == "ckh" and call[1] in COMMANDS for call in calls)


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_every_option_is_in_a_panel(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The last panel, for options without one, has only those for help."""
    assert run([*command, "--help-all"]) == ExitCode.OK
    options = capsys.readouterr().out.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert [line.split()[:3] for line in options.splitlines()] == [["-h,", "--help,", "--help-all"]]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_help_has_two_levels(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """--help has at most 25 options and one paragraph; --help-all has all options of the operation."""
    shown = []
    for option in ("--help", "--help-all"):
        assert run([*command, option]) == ExitCode.OK
        shown.append(capsys.readouterr().out)
    short, whole = (set(re.findall(r"^  (?:-[a-z], )?(--[a-z-]+)", text, re.MULTILINE)) for text in shown)
    assert len(short) <= 25
    assert short <= whole
    loaded: Any = typer.main.get_command(build_app(command[:1]))
    for name in command:
        loaded = loaded.commands[name]
    of_others = {as_option(option.name) for part in all_requested().values() for option in part.options}
    of_others -= {as_option(option.name) for option in all_requested()["grouped_conv"].options}
    assert {param.opts[0] for param in loaded.params if param.param_type_name == "option"} - of_others <= whole
    assert shown[0].partition("\n\n")[2].partition("\n\n")[0] == shown[1].partition("\n\n")[2].partition("\n\n")[0]


def test_options_are_found_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    """--N is --n, and values of a choice may be in capitals."""
    texts = []
    for asked in (["--n", "16", "--variant", "forward"], ["--N", "16", "--VARIANT", "Forward"]):
        assert run(["predict", *asked, "--arch", "gfx950", "--json"]) == ExitCode.OK
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("op", operation_names())
@pytest.mark.parametrize("args", [["--op={}"], ["--op", "{}"]], ids=len)
def test_help_shows_options_of_the_requested_operation(
    op: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Problem options are the operation's, in its order; --variant and --pad-channels are for convolutions."""
    assert run(["predict", "--help-all", *(arg.format(op) for arg in args)]) == ExitCode.OK
    panel = capsys.readouterr().out.partition("\nProblem:\n")[2].partition("\n\n")[0]
    has_directions = operation(op).has_directions
    own = [as_option(option.name) for option in all_requested()[op].options]
    expected = ["--op", *own, *["--variant"] * has_directions, "--dtype", "--arch", "--problems"]
    expected += ["--pad-channels"] * has_directions
    assert re.findall(r"^  (--[a-z-]+)", panel, re.MULTILINE) == expected


@pytest.mark.parametrize(("args", "op"), [([], "grouped_conv"), (["--m", "8"], "gemm_universal")])
def test_help_infers_the_operation(args: list[str], op: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a convolution, or with --m a GEMM, as in predictions."""
    assert run(["predict", *args, "--help"]) == ExitCode.OK
    meant = capsys.readouterr().out
    assert run(["predict", "--op", op, "--help"]) == ExitCode.OK
    assert capsys.readouterr().out == meant


@pytest.mark.parametrize("args", [[], ["validate"]], ids=len)
def test_a_group_alone_shows_its_help(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The same text as with --help, and an exit code other than 0."""
    assert run([*args, "--help"]) == ExitCode.OK
    text = capsys.readouterr().out
    assert run(args) == ExitCode.USAGE
    assert "".join(capsys.readouterr()).strip() == text.strip()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`ckh --version` prints the version."""
    assert run(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"ckh {__version__}\n"


@pytest.mark.parametrize(
    ("args", "said", "place"),
    [
        (["bogus"], "no such command 'bogus'", "ckh"),
        (["validate", "bogus"], "no such command 'bogus'", "ckh validate"),
        (["predict", "--bogus"], "no such option: --bogus (Possible options: --cus, --g, --groups)", "ckh predict"),
        (["predict", "--c"], "option '--c' requires an argument", "ckh predict"),
        (["predict", "--n", "two"], "--n must be a whole number", "ckh predict"),
        (["predict", "--n", "16.5"], "--n must be a whole number", "ckh predict"),
        (
            ["predict", "--variant", "up"],
            "invalid value for '--variant': 'up' is not one of 'forward', ",
            "ckh predict",
        ),
        (["convert"], "missing argument 'INPUT...'", "ckh convert"),
    ],
)
def test_wrong_usage_exits_with_2(args: list[str], said: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command, option or value is one line that names it, and one that names the help."""
    assert run(args) == ExitCode.USAGE
    out, err = capsys.readouterr()
    line, hint = err.splitlines()
    assert out == ""
    assert line.startswith(f"error: {said}")
    assert hint == f"hint: see {place} --help"


def test_an_error_is_one_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """An impossible problem gives one clear line on stderr, nothing on stdout, and exit code 2."""
    assert run(["predict", "--c", "10", "--g", "3"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    expect_error(err, "indivisible", "C=10", "G=3")


@pytest.mark.parametrize("args", [["--help"], ["predict", "--help"], ["search", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    """Help is fast because it imports no data or learning library, nor Typer's validation."""
    heavy = ["pydantic", "numpy", "pandas", "pyarrow", "lightgbm", "sklearn", "rich.progress", "joblib"]
    code = f"import sys; from ckh.cli import run; run({args}); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
