"""`ckh validate selection` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.kernel import kernel_name, parse_kernel_name
from tests.learn.conftest import build, kernels, problems, saved, time_ms
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.ops.grouped_conv.problem import ConvProblem

LIST = [problems()[2], problems()[3], problems()[4]]


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The choices of a small model for three problems."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "model")
    (tmp_path / "list.txt").write_text("".join(f"{problem.canonical()}\n" for problem in LIST), encoding="utf-8")
    args = ["validate", "selection", "golden.json", "--create", "--problems", "list.txt", "--model", "model"]
    assert run(args) == ExitCode.OK
    return tmp_path / "golden.json"


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def measured(problem: ConvProblem, times: dict[str, float], *, failed: bool = False) -> None:
    """Write `data.parquet` with times of kernels by name on one problem; with `failed`, the last one failed."""
    rows = [(problem, parse_kernel_name(name), ms) for name, ms in times.items()]
    write_dataset(build(rows, [len(rows) - 1] if failed else []), "data.parquet")


def other_kernel(but: str) -> str:
    """A kernel of the pool with another name."""
    return next(name for kernel in kernels() if (name := kernel_name(kernel)) != but)


def test_golden_choices_match_predict(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has the first choices of `ckh predict`, and an immediate comparison passes."""
    kept = json.loads(golden.read_text(encoding="utf-8"))
    assert (kept["schema"], kept["op"], kept["arch"]) == ("ckh.selection", "grouped_conv", "host")
    capsys.readouterr()
    assert run(["predict", "--problems", "list.txt", "--model", "model", "--top", "1", "--json"]) == ExitCode.OK
    results = json.loads(capsys.readouterr().out)["results"]
    assert kept["kernels"] == {result["problem"]: result["kernels"][0]["kernel"] for result in results}
    assert run(["validate", "selection", "golden.json", "--model", "model"]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    assert "3 problems, 0 changed" in stdout
    assert stderr.splitlines()[-1] == "PASS"


@pytest.mark.parametrize(
    ("now_ms", "options", "code"),
    [
        (1.0, [], ExitCode.OK),
        (1.019, [], ExitCode.OK),
        (1.021, [], ExitCode.GATE_FAILED),
        (1.021, ["--max-loss", "0.03"], ExitCode.OK),
    ],
)
def test_a_change_is_rated_by_measurements(
    golden: Path, now_ms: float, options: list[str], code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slower by at most 2 %, or the given limit, passes; times are those of the data."""
    problem = LIST[0]
    now = json.loads(golden.read_text(encoding="utf-8"))["kernels"][problem.canonical()]
    was = other_kernel(now)
    edit(golden, lambda document: document["kernels"].update({problem.canonical(): was}))
    measured(problem, {was: 1.0, now: now_ms})
    args = ["validate", "selection", "golden.json", "--model", "model", "--data", "data.parquet", "--json"]
    capsys.readouterr()
    assert run([*args, *options]) == code
    document = json.loads(capsys.readouterr().out)
    (change,) = document["changes"]
    assert (change["problem"], change["was"], change["now"]) == (problem.canonical(), was, now)
    assert change["slowdown"] == pytest.approx(now_ms - 1)
    assert document["passes"] == (code == ExitCode.OK)


def test_a_change_that_failed_is_refused(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A current choice with a wrong result fails the gate, also in the files for CI."""
    problem = LIST[0]
    now = json.loads(golden.read_text(encoding="utf-8"))["kernels"][problem.canonical()]
    was = other_kernel(now)
    edit(golden, lambda document: document["kernels"].update({problem.canonical(): was}))
    measured(problem, {was: time_ms(problem, kernels()[0]), now: 1.0}, failed=True)
    files = ["--verdict", "ci/junit.xml", "--verdict", "ci/summary.md"]
    args = ["validate", "selection", "golden.json", "--model", "model", "--data", "data.parquet", *files]
    assert run(args) == ExitCode.GATE_FAILED
    assert "failed: wrong_result" in capsys.readouterr().err
    suite = ET.parse("ci/junit.xml").getroot()[0]  # noqa: S314 - our own file
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert "## FAIL: golden.json" in Path("ci/summary.md").read_text(encoding="utf-8")
    assert run(args) == ExitCode.GATE_FAILED
    Path("ci/junit.xml").write_text("mine", encoding="utf-8")
    assert run(args) == ExitCode.USAGE
    assert Path("ci/junit.xml").read_text(encoding="utf-8") == "mine"


def test_unmeasured_changes_fail(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a time of both kernels a change cannot be evaluated."""
    name = LIST[0].canonical()
    edit(golden, lambda document: document["kernels"].update({name: other_kernel(document["kernels"][name])}))
    args = ["validate", "selection", "golden.json", "--model", "model"]
    assert run(args) == ExitCode.GATE_FAILED
    expect_values(capsys.readouterr().err, name, "measured")


def test_json_of_create_is_the_file(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The written file is printed too; without --json nothing is."""
    args = ["validate", "selection", "golden.json", "--create", "--model", "model", "--force"]
    capsys.readouterr()
    for more, printed in ([], ""), (["--json"], golden.read_text(encoding="utf-8")):
        assert run([*args, *more]) == ExitCode.OK
        assert capsys.readouterr().out == printed


def test_changes_are_accepted_with_force(golden: Path) -> None:
    """The file is replaced only then, and keeps its list unless another is named."""
    first = golden.read_bytes()
    name = LIST[0].canonical()
    edit(golden, lambda document: document["kernels"].update({name: other_kernel(document["kernels"][name])}))
    args = ["validate", "selection", "golden.json", "--create", "--model", "model"]
    assert run(args) == ExitCode.USAGE
    assert run([*args, "--force"]) == ExitCode.OK
    assert golden.read_bytes() == first


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{}", "bad-field"),
        ('{"schema": "ckh.predict", "schema_version": "1.0", "ckh_version": "1"}', "not-golden"),
        ("nonsense", "bad-json"),
    ],
)
def test_a_wrong_file_is_refused(golden: Path, text: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Another kind of file is named, and not replaced even with --force."""
    golden.write_text(text, encoding="utf-8")
    assert run(["validate", "selection", "golden.json"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, code, "golden.json")
    assert run(["validate", "selection", "golden.json", "--create", "--force"]) == ExitCode.USAGE
    assert golden.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "args",
    [
        ["--create"],
        ["--problems", "list.txt"],
        ["--data", "a.parquet", "--on-device"],
        ["--create", "--on-device"],
        ["--verdict", "a.txt"],
    ],
)
def test_conflicting_options_are_refused(args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused before anything is read."""
    monkeypatch.chdir(tmp_path)
    assert run(["validate", "selection", "golden.json", *args]) == ExitCode.USAGE


@pytest.mark.slow
def test_changes_are_measured_on_the_device(
    golden: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both kernels are compiled, run interleaved and compared."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    name = LIST[1].canonical()
    edit(golden, lambda document: document["kernels"].update({name: other_kernel(document["kernels"][name])}))
    args = ["validate", "selection", "golden.json", "--model", "model", "--on-device", "--max-loss", "1e9", "--json"]
    capsys.readouterr()
    assert run(args) == ExitCode.OK
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert change["slowdown"] == pytest.approx(change["now_ms"] / change["was_ms"] - 1)
    assert change["was_ms"] > 0
