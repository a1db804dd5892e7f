"""Quick searches equal the full command's to the letter, or do not exist."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ckh import cli
from ckh.quick.answer import searched_text
from ckh.quick.request import parse
from ckh.text.log import written


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "line",
    ["--n 16 --c 256", "--c 64 --k 128 --hi 56 --stride 2 --top 3 --wide", "--m 128 --n 96 --k 256 --json --top 20"],
)
def test_searches_equal_the_full_command(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For convolutions and GEMMs, as text and as JSON."""
    request = parse(["search", *line.split()])
    assert request is not None
    assert cli.run(["search", *line.split()]) == 0
    assert written(searched_text(request) or "") == capsys.readouterr().out


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("line", ["--c 10 --g 3", "--c 64 --arch gfx90a", "--c 64 --dtype bf16 --arch host"])
def test_searches_without_a_model_are_left_to_the_full_command(line: str) -> None:
    """It refuses invalid input, and reports substitutes of a model."""
    request = parse(["search", *line.split()])
    assert request is not None
    assert searched_text(request) is None


@pytest.mark.parametrize("line", ["measure --c 64", "--require measured --c 64", "--c 64 --why", "set --size 20"])
def test_other_searches_are_left_to_the_full_command(line: str) -> None:
    """Measuring, sets, and the flags of other commands."""
    assert parse(["search", *line.split()]) is None


@pytest.mark.usefixtures("alone")
def test_no_library_of_the_command_line_is_imported() -> None:
    """Neither are libraries for data and learning."""
    code = (
        "import sys; from ckh.entry import run; assert run(['search', '--c', '64', '--arch', 'host']) == 0; "
        "names = ('typer', 'pydantic', 'pandas', 'pyarrow', 'lightgbm', 'sklearn', 'scipy', 'importlib.metadata'); "
        "print(sorted(set(names) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("[]\n", 0)
