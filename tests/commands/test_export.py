"""`ckh export` on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from tests.learn.conftest import saved
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model."""
    return saved(tmp_path / "mine")


def test_c_is_written_and_reported(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder has everything that a compiler needs, and the report lists its contents."""
    out = tmp_path / "c"
    assert run(["export", "--model", str(model), "--to", "c", "--out", str(out)]) == ExitCode.OK
    printed = capsys.readouterr().out
    expect_values(printed, "mine", 600, "rank", "tflops")
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {"ckh.h", "ckh.c", "example.c", "CMakeLists.txt", "README.md", "export.json", "models/mine.ckhm"} <= names
    expect_values((out / "README.md").read_text(), "grouped_conv", "forward", "fp32", "host")


def test_json_is_one_document(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json nothing else is printed."""
    out = tmp_path / "c"
    assert run(["export", "-m", str(model), "--to", "c", "--out", str(out), "--embed", "--json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert report["embedded"] is True
    assert report["models"][0]["kernels"] == 600
    assert report["files"] == {str(p.relative_to(out)): p.stat().st_size for p in out.rglob("*") if p.is_file()}


def test_nothing_is_overwritten_without_force(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An export needs --force to be replaced, as a whole; any other folder is unchanged, even the model's own."""
    out = tmp_path / "out"
    args = ["export", "--model", str(model), "--to", "c", "--out", str(out)]
    assert run(args) == ExitCode.OK
    capsys.readouterr()
    assert run(args) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "output-exists", out, "--force")
    assert run([*args, "--force", "--embed"]) == ExitCode.OK
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert set(json.loads((out / "export.json").read_text())["files"]) == names
    assert "models/mine.ckhm" not in names
    (out / "my_notes").write_text("mine")
    capsys.readouterr()
    assert run([*args, "--force"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "foreign-output", "my_notes")
    assert (out / "my_notes").read_text() == "mine"
    assert run([*args[:-1], str(model), "--force"]) == ExitCode.USAGE
    assert (model / "feature_spec.json").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("a night's measurements")
    assert run([*args[:-1], str(tmp_path / "run"), "--force"]) == ExitCode.USAGE
    assert (tmp_path / "run" / "journal.jsonl").read_text() == "a night's measurements"


@pytest.mark.parametrize(
    ("args", "exit_code", "code", "value"),
    [
        (["--to", "ck-dispatcher", "--embed"], ExitCode.USAGE, "inapplicable-option", "--embed"),
        (["--to", "c", "--arch", "gfx942"], ExitCode.USAGE, "inapplicable-option", "--arch"),
        (["--to", "aiter"], ExitCode.USAGE, "missing-option", "--problems"),
        (["--to", "pascal"], ExitCode.USAGE, "unknown-name", "pascal"),
        (["--to", "lgbm"], ExitCode.USAGE, "unknown-name", "--to c"),
        (["--to", "c", "--model", "missing"], ExitCode.BAD_DATA, "no-model", "missing"),
    ],
)
def test_wrong_usage_is_refused(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    exit_code: ExitCode,
    code: str,
    value: str,
) -> None:
    """The error is one line, and nothing is written."""
    out = tmp_path / "out"
    assert run(["export", "--model", str(model), "--out", str(out), *args]) == exit_code
    expect_error(capsys.readouterr().err, code, value)
    assert not out.exists()
