"""The commands of the recorded terminal session."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from benchmarks.terminal_session import COMMANDS, write_config
from ckh.cli import run
from ckh.errors import ExitCode

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "session.svg"


@pytest.mark.slow
def test_commands_of_the_session_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each ends with exit code 0 on a machine without a GPU, and leaves what a session shows."""
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path)
    for command in COMMANDS:
        program, *args = shlex.split(command)
        assert program == "ckh"
        assert run(args) == ExitCode.OK, capfd.readouterr().err
    assert (tmp_path / "tables" / "export" / "predicted" / "a8w8_tuned_gemm.csv").is_file()
    assert (tmp_path / "tuned" / "shapes.csv").is_file()


def test_picture_has_the_commands_and_loads_nothing() -> None:
    """The picture is of these commands, and refers to no other file."""
    text = PICTURE.read_text(encoding="utf-8").replace("&#160;", " ")
    assert all(f"$ {command[:60]}" in text for command in COMMANDS)
    assert "url(" not in text.replace("url(#", "")
    assert text.count("http") == text.count("http://www.w3.org/") + text.count("https://www.textualize.io")
