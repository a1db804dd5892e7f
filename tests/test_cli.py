"""The command line as a whole: help, version, errors and exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ckh import __version__
from ckh.cli import COMMANDS, run
from ckh.errors import EXIT_CODE_MEANING, ExitCode


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """`ckh --help` lists all commands and what each exit code means."""
    assert run(["--help"]) == ExitCode.OK
    text = " ".join(capsys.readouterr().out.split())
    assert all(name in text for name in COMMANDS)
    assert all(f"{code.value} {meaning}" in text for code, meaning in EXIT_CODE_MEANING.items())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command's help shows how it is used."""
    assert run([name, "--help"]) == ExitCode.OK
    assert f"ckh {name}" in capsys.readouterr().out.split("Examples:")[-1]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`ckh --version` prints the version."""
    assert run(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"ckh {__version__}\n"


@pytest.mark.parametrize("args", [["bogus"], ["predict", "--bogus"], ["predict", "--n", "two"]])
def test_wrong_usage_exits_with_2(args: list[str]) -> None:
    """An unknown command, option or value is wrong usage."""
    assert run(args) == ExitCode.USAGE


def test_an_error_is_one_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """A problem that cannot be gives one clear line on stderr, nothing on stdout, and exit code 2."""
    assert run(["predict", "--c", "10", "--g", "3"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "error: C=10 is not divisible by G=3"


def test_help_imports_nothing_heavy() -> None:
    """`ckh --help` stays instant because it imports no data or learning library, nor what Typer checks values with."""
    heavy = ["pydantic", "numpy", "pandas", "pyarrow", "lightgbm", "sklearn", "rich.progress", "joblib"]
    code = f"import sys; from ckh.cli import run; run(['--help']); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
