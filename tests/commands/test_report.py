"""`ckh report` on the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.data.journal import ReferenceRecord
from ckh.errors import ExitCode
from tests.learn.conftest import measured, saved, silent
from tests.refusals import expect_error, expect_values
from tests.runs import rows, start

DATA_FIGURES = ["coverage", "times", "roofline", "winners", "failures", "noise"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data() -> str:
    """A dataset."""
    write_dataset(measured(), "data.parquet")
    return "data.parquet"


def run_folder(count: int) -> str:
    """Write the journal of a run that has not ended."""
    writer = start("run")
    writer.add(*rows(count))
    for i, ms in enumerate((1.0, 1.0, 1.1)):
        writer.add_reference(ReferenceRecord("r", "p", "k", ms, ms, None, None, 60.0 * i))
    writer.close()
    return "run"


@pytest.mark.slow
def test_an_unwritable_home_is_no_error() -> None:
    """Matplotlib keeps its own cache there, and would print long warnings."""
    run_folder(60)
    environment = {**os.environ, "HOME": "/proc/1/none", "MPLCONFIGDIR": ""}
    command = [sys.executable, "-m", "ckh", "report", "run", "--out", "page.html"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("page.html").is_file()


def figures(stdout: str) -> list[str]:
    """Names in the JSON document."""
    return list(json.loads(stdout)["figures"])


@pytest.mark.slow
def test_a_dataset(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The page and the pictures are written."""
    args = ["report", data, "--plots", "pictures", "--json"]
    assert run(args) == ExitCode.OK
    names = figures(capsys.readouterr().out)
    assert names == DATA_FIGURES
    assert sorted(path.name for path in Path("pictures").iterdir()) == sorted(
        f"{name}.{kind}" for name in names for kind in ("svg", "png")
    )


@pytest.mark.slow
def test_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A run has the figures of its rows as a dataset, and the drift of its reference; --force replaces the page."""
    folder = run_folder(60)
    assert run(["report", folder, "--json"]) == ExitCode.OK
    assert figures(capsys.readouterr().out) == [*DATA_FIGURES[:6], "machine"]
    text = Path("report.html").read_text(encoding="utf-8")
    pairs = {(row.problem, row.kernel) for row in rows(60)}
    assert re.search(rf"measurements\D*{len(pairs)}\D", text)
    expect_values(text, "+0.0% to +10.0%")
    assert run(["report", folder]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "output-exists", "report.html")
    assert run(["report", folder, "--force"]) == ExitCode.OK


@pytest.mark.slow
def test_models(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model is evaluated; two are refused, with the command that compares them."""
    for name in ("old", "new"):
        silent(saved(Path(name)))
    assert run(["report", "old", "--among", "measured", "--data", data, "--out", "old.html", "--json"]) == ExitCode.OK
    assert figures(capsys.readouterr().out) == ["efficiency", "regret", "heat", "roofline", "calibration"]
    assert run(["report", "old", "new", "--data", data, "--out", "both.html"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "several-models", "ckh validate compare")


@pytest.mark.parametrize(
    ("args", "code", "value"),
    [
        (["old"], "missing-option", "--data"),
        (["data.parquet", "--learning-curve"], "inapplicable-option", "--learning-curve"),
        (["data.parquet", "--over", "C,K"], "inapplicable-option", "--over"),
        (["data.parquet", "--data", "data.parquet"], "inapplicable-option", "--data"),
        (["data.parquet", "--watch"], "inapplicable-option", "--watch"),
        (["old", "data.parquet", "--data", "data.parquet"], "several-models", ""),
        (["data.parquet", "--out", "data.parquet", "--force"], "unsafe-output", "data.parquet"),
    ],
)
def test_unsupported_input_is_refused(
    args: list[str], code: str, value: str, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line, before anything is written."""
    silent(saved(Path("old")))
    assert run(["report", *args]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, code, value)
    assert not Path("report.html").exists()


def test_without_matplotlib_the_extra_is_named(
    data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matplotlib is an optional dependency."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert run(["report", data]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "not-installed", "ckh[report]")


def test_an_empty_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is neither run, model nor dataset is bad data."""
    Path("empty").mkdir()
    assert run(["report", "empty"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "unknown-format", "empty")
