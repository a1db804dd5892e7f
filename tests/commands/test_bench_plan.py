"""`ckh bench --plan`: few problems and kernels, measured and resumed like any other run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ckh.archs import load_arch
from ckh.bench.planning.plan import full_name
from ckh.cli import run
from ckh.data.journal import read_journal
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.refusals import expect_error, expect_values

PROBLEMS = [
    ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()
    for size in (7, 8, 9, 40)
]
KERNELS = [full_name(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("host"))[:240:60]]


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of a run on four problems and four kernels into `run`, in an empty folder."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
    (tmp_path / "kernels").write_text("\n".join(KERNELS), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return ["bench", "--device", "host", "--problems", "problems.txt", "--kernels", "kernels", "--out", "run"]


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON document on stdout."""
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


@pytest.mark.slow
@pytest.mark.usefixtures("known_host")
def test_a_plan_is_shown_measured_and_resumed(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The pairs printed by --dry-run are those measured; a resumed run continues them."""
    assert run([*args, "--plan", "2", "--dry-run", "--json"]) == ExitCode.OK
    shown = document(capsys)
    assert shown["chosen_by"] == "grouped_conv_forward_fp32_host"
    assert (shown["problems"], shown["pairs"], shown["kernels"]) == (2, 8, 4)
    assert 0 < shown["measuring_s"] < shown["estimate_s"]
    assert not Path("run").exists()
    assert run([*args, "--plan", "2", "--json"]) == ExitCode.OK
    capsys.readouterr()
    journal = read_journal(Path("run"))
    planned = {(task["problem"], kernel) for task in shown["plan"] for kernel in task["kernels"]}
    assert {(row.problem, row.kernel) for row in journal.rows} == planned
    lines = Path("run/journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "result")
    Path("run/journal.jsonl").write_text("".join(lines[: first + 3]), encoding="utf-8")
    assert run(["bench", "--resume", "--out", "run", "--json"]) == ExitCode.OK
    assert document(capsys)["pairs_left"] == 0
    assert {(row.problem, row.kernel) for row in read_journal(Path("run")).rows} == planned


@pytest.mark.slow
@pytest.mark.usefixtures("known_host")
def test_the_rest_is_planned_again_by_times_of_the_run(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The journal has both plans; the second has all pairs measured before, and a resumed run continues it."""
    assert run([*args, "--plan", "auto", "--budget", "10m", "--jobs", "1", "--json"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert json.loads(out)["pairs_left"] == 0
    expect_values(err, "planned again, ")
    journal = read_journal(Path("run"))
    assert [plan.pairs for plan in journal.plans] == [None, len(PROBLEMS) * len(KERNELS)]
    pairs = [(row.problem, row.kernel) for row in journal.rows if not row.remeasured]
    assert sorted(pairs) == sorted((problem, kernel) for problem in PROBLEMS for kernel in KERNELS)
    lines = Path("run/journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "task")
    Path("run/journal.jsonl").write_text("".join(lines[: last + 1]), encoding="utf-8")
    assert run(["bench", "--resume", "--out", "run", "--json"]) == ExitCode.OK
    assert document(capsys)["pairs_left"] == 0


@pytest.mark.usefixtures("known_host")
def test_auto_fits_the_budget(
    args: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimated time of auto's choice is within the budget; the text states it, and lists the first problems."""
    monkeypatch.setattr("ckh.commands.bench.output._TASKS_SHOWN", 1)
    whole = [word for word in args if word not in ("--kernels", "kernels")]
    assert run([*whole, "--plan", "auto", "--budget", "10s", "--jobs", "2", "--dry-run", "--json"]) == ExitCode.OK
    shown = document(capsys)
    assert 0 < shown["estimate_s"] <= 10
    assert 0 < shown["kernels"] < 300
    assert run([*whole, "--plan", "auto", "--budget", "10s", "--dry-run"]) == ExitCode.OK
    out = capsys.readouterr().out
    expect_values(out, "grouped_conv_forward_fp32_host:")
    assert "compilation" in out
    first, second, *_ = [task["problem"] for task in shown["plan"]]
    assert first in out
    assert second not in out
    expect_values(out, "--json")


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (["--plan", "0"], "bad-number", "'0'"),
        (["--plan", "auto"], "missing-option", "--budget"),
        (["--plan", "3", "--kernels", "sample:5"], "conflicting-options", "--kernels sample:5"),
    ],
)
def test_impossible_plans_are_refused(
    args: list[str], options: list[str], code: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is a usage error in one line, and nothing is created."""
    assert run([*args, *options]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, code, value)
    assert not Path("run").exists()
