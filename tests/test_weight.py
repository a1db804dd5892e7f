"""Ceilings of the size of ckh. They only fall: a feature pays for its lines by deleting as many (CONTRIBUTING.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import typer

from ckh.cli import COMMANDS, build_app

ROOT = Path(__file__).parents[1]
LINES, FILES = 74_459, 410  # of Python in ckh/
OPTIONS = 356  # of all commands, without -h and --help-all
DOC_WORDS = 25_916  # of README.md and docs/
INSTALLED_MB = 9  # without dependencies


def python_lines() -> list[int]:
    """Return the number of lines of each Python file of ckh."""
    paths = [path for path in (ROOT / "ckh").rglob("*.py") if "__pycache__" not in path.parts]
    return [path.read_text(encoding="utf-8").count("\n") for path in paths]


def options_of(command: Any) -> int:
    """Return the number of options of a command and of its subcommands, without those for help."""
    own = [item for item in command.params if item.param_type_name == "option"]
    return sum(not {"--help", "--help-all"} & set(item.opts) for item in own) + sum(
        map(options_of, getattr(command, "commands", {}).values())
    )


def test_python_stays_below_its_ceilings() -> None:
    """Lines and files of ckh/."""
    lines = python_lines()
    assert sum(lines) <= LINES
    assert len(lines) <= FILES


def test_options_stay_below_their_ceiling() -> None:
    """Options of all commands and subcommands."""
    assert options_of(typer.main.get_command(build_app(tuple(COMMANDS)))) <= OPTIONS


def test_words_of_docs_stay_below_their_ceiling() -> None:
    """README.md and the pages of docs/."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= DOC_WORDS


@pytest.mark.slow
def test_the_wheel_stays_below_its_ceiling() -> None:
    """Bytes of the installed wheel, which `.ci/run` names in CKH_TEST_WHEEL."""
    if not (wheel := os.environ.get("CKH_TEST_WHEEL")):
        pytest.skip("CKH_TEST_WHEEL names no wheel")
    with ZipFile(wheel) as unpacked:
        assert sum(item.file_size for item in unpacked.infolist()) <= INSTALLED_MB * 1e6
