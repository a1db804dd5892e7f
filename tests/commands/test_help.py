"""`ckh help` prints the pages of docs/."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckh.cli import run
from ckh.commands import help as help_command
from ckh.errors import ExitCode
from tests.refusals import expect_error

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}


def test_all_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each page with its title."""
    assert run(["help"]) == ExitCode.OK
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:]]
    titles = {name: text.splitlines()[0].removeprefix("# ") for name, text in PAGES.items()}
    assert dict(lines) == titles | {"codes": help_command._CODES_TITLE}


@pytest.mark.parametrize("name", ["gpu", "predict"])
def test_a_page_is_printed_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """If stdout is not a terminal, Markdown is kept."""
    assert run(["help", name]) == ExitCode.OK
    assert capsys.readouterr().out == PAGES[name]


def test_a_page_is_laid_out_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines fit its width, and Markdown marks are removed."""
    monkeypatch.setattr(help_command, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["help", "ci"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    assert "```" in PAGES["ci"]
    assert "```" not in out


@pytest.mark.parametrize(("topic", "hint"), [("reliabilty", "reliability"), ("bench", "ckh bench --help")])
def test_an_unknown_topic_is_refused(topic: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The hint has the nearest page, or names a command's --help."""
    assert run(["help", topic]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "unknown-name", topic, hint)


@pytest.mark.parametrize("command", ["bench", "predict", "tune", "train", "export"])
def test_help_of_a_command_fits_a_page(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """60 lines and 25 options at the most, and whole examples; --help-all has the rest."""
    assert run([command, "--help"]) == ExitCode.OK
    short = capsys.readouterr().out
    assert run([command, "--help-all"]) == ExitCode.OK
    whole = capsys.readouterr().out
    assert len(short.splitlines()) <= 60 < len(whole.splitlines())
    assert sum(line.startswith("  -") for line in short.splitlines()) <= 25
    assert not short.rstrip().endswith("\\")
    assert len(re.findall(rf"^    ckh {command}", whole, re.MULTILINE)) > len(
        re.findall(rf"^    ckh {command}", short, re.MULTILINE)
    )
