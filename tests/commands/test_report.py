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
from ckh.data.journal import EndRecord, ReferenceRecord
from ckh.errors import ExitCode
from tests.learn.conftest import measured, problems, saved, silent
from tests.refusals import expect_error, expect_values
from tests.runs import rows, start


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data() -> str:
    """A dataset."""
    write_dataset(measured(), "data.parquet")
    return "data.parquet"


def searched() -> tuple[int, int]:
    """Write a search, whose report has one figure; the number of its measurements, and the place of the best."""
    writer = start("search", "search:anneal")
    result = [row for row in rows(60) if row.problem == problems()[2].canonical() and not row.remeasured]
    writer.add(*result)
    writer.end_run(EndRecord("r", "complete", 1.0, {}))
    writer.close()
    return len(result), min(range(len(result)), key=lambda i: result[i].latency_ms or 1e9) + 1


@pytest.mark.slow
def test_an_unwritable_home_is_no_error() -> None:
    """Matplotlib keeps its own cache there, and would print long warnings."""
    searched()
    environment = {**os.environ, "HOME": "/proc/1/none", "MPLCONFIGDIR": ""}
    command = [sys.executable, "-m", "ckh", "report", "search", "--out", "page.html"]
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
    assert names == ["coverage", "times", "roofline", "winners", "failures", "noise", "noise-over-time"]
    assert sorted(path.name for path in Path("pictures").iterdir()) == sorted(
        f"{name}.{kind}" for name in names for kind in ("svg", "png")
    )


@pytest.mark.slow
def test_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the progress of the plan, and the drift of remeasured pairs."""
    writer = start("run")
    writer.add(*rows(60))
    for i, ms in enumerate((1.0, 1.0, 1.1)):
        writer.add_reference(ReferenceRecord("r", "p", "k", ms, ms, None, None, 60.0 * i))
    writer.close()
    assert run(["report", "run", "--json"]) == ExitCode.OK
    assert figures(capsys.readouterr().out) == [
        "progress",
        "coverage",
        "winners",
        "failures",
        "noise",
        "drift",
        "machine",
    ]
    text = Path("report.html").read_text(encoding="utf-8")
    expect_values(text, "60 of 72")
    expect_values(text, "12 minutes")
    expect_values(text, "+0.0% to +10.0%")
    assert "still measuring" in text


@pytest.mark.slow
def test_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    """The best time by number of measurements, with the place of the best; files are replaced only with --force."""
    count, best = searched()
    args = ["report", "search", "--plots", "pictures", "--json"]
    assert run(args) == ExitCode.OK
    assert figures(capsys.readouterr().out) == ["search"]
    text = Path("report.html").read_text(encoding="utf-8")
    assert re.search(rf"of {count}\D*{best}\D", text)
    assert run(args[:-1]) == ExitCode.USAGE
    assert "report.html exists" in capsys.readouterr().err
    assert run([*args, "--force"]) == ExitCode.OK


@pytest.mark.slow
def test_a_run_is_reported_again_when_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """With --force the page has the rows that came meanwhile, and how the run ended."""
    writer = start("run")
    writer.add(*rows(6))
    assert run(["report", "run"]) == ExitCode.OK
    assert "6 of 72" in Path("report.html").read_text(encoding="utf-8")
    writer.add(*rows(12)[6:12])
    writer.end_run(EndRecord("r", "complete", 1.0, {}))
    writer.close()
    assert run(["report", "run", "--force"]) == ExitCode.OK
    last = Path("report.html").read_text(encoding="utf-8")
    assert "12 of 72" in last
    assert "still measuring" not in last


@pytest.mark.slow
def test_models(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model is evaluated; two are refused, with the command that compares them."""
    for name in ("old", "new"):
        silent(saved(Path(name)))
    assert run(["report", "old", "--among", "measured", "--data", data, "--out", "old.html", "--json"]) == ExitCode.OK
    assert figures(capsys.readouterr().out) == ["efficiency", "regret", "heat", "roofline", "calibration", "learning"]
    assert run(["report", "old", "new", "--data", data, "--out", "both.html"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "several-models", "ckh validate compare")


@pytest.mark.parametrize(
    ("args", "code", "value"),
    [
        (["old"], "missing-option", "--data"),
        (["data.parquet", "--learning-curve"], "inapplicable-option", "--learning-curve"),
        (["data.parquet", "--over", "C,K"], "inapplicable-option", "--over"),
        (["data.parquet", "--data", "data.parquet"], "inapplicable-option", "--data"),
        (["data.parquet", "--problems", "host-train"], "inapplicable-option", "host-train"),
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
