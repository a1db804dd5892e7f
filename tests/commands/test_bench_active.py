"""`ckh bench --active`: pairs chosen as results arrive, the stop by expected gain, and resuming."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from ckh.archs import load_arch
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision import reference_watch as reference
from ckh.bench.supervision import sweep
from ckh.cli import run
from ckh.data.journal import Journal, read_journal
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction

PROBLEMS = [
    ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()
    for size in range(7, 27)
]
KERNELS = [full_name(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("host"))[:240:30]]


@pytest.fixture(scope="module")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which each kernel is compiled once for these tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def args(tmp_path: Path, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of an active run on twenty problems and eight kernels into `run`, in an empty folder."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(kernel_cache))
    (tmp_path / "problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
    (tmp_path / "kernels").write_text("\n".join(KERNELS), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    what = ["--problems", "problems.txt", "--kernels", "kernels", "--samples", "2"]
    return ["bench", "--device", "host", "--out", "run", "--json", "--active", *what]


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON document on stdout."""
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def pairs_of(journal: Journal) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The chosen pairs, and the measured pairs, by name."""
    (plan,) = journal.plans
    chosen = {(item.problem, plan.kernels[number]) for item in journal.chosen for number in item.kernels}
    return chosen, {(row.problem, row.kernel) for row in journal.rows}


@pytest.mark.slow
@pytest.mark.usefixtures("small_priors")
def test_a_run_stops_when_the_expected_gain_is_small(
    args: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends as soon as the gain of a minute is known; exactly the chosen pairs are measured; it can be resumed.

    There is a reference measurement before the first pair of a run and after its last, whatever ends it.
    """
    monkeypatch.setattr(sweep, "LEAST_PAIRS", 1)
    monkeypatch.setattr(reference, "EVERY_S", 1e6)
    monkeypatch.setattr(reference, "DRIFT", 1e6)  # nothing is remeasured
    assert run([*args, "--stop-gain", "100"]) == ExitCode.OK
    stopped = document(capsys)
    assert (stopped["ended"], stopped["next"].split()[:2]) == ("gain", ["ckh", "convert"])
    report = stopped["active"]
    assert 12 <= report["problems"] < 20
    check_models(report["models"])
    assert 0 < report["efficiency"]["low"] <= report["efficiency"]["value"] <= report["efficiency"]["high"] <= 1
    assert report["hour"]["value"] >= report["minute"]["value"] >= 0
    assert report["hour_pairs"] == stopped["pairs_left"] == 20 * 8 - report["pairs"]
    chosen, measured = pairs_of(read_journal(Path("run")))
    assert chosen == measured
    assert len(measured) == report["pairs"]
    check_looks(1)
    assert run(["bench", "--resume", "--out", "run", "--json", "--stop-gain", "0"]) == ExitCode.OK
    whole = document(capsys)
    assert (whole["ended"], whole["pairs_left"], whole["active"]["pairs"]) == ("complete", 0, 20 * 8)
    assert whole["active"]["hour"]["value"] == 0
    assert len(pairs_of(read_journal(Path("run")))[1]) == 20 * 8
    check_looks(2)


def check_models(models: int) -> None:
    """Check that models have six problems or more, each 1.3 times as many pairs, and none chose for twelve."""
    chosen = read_journal(Path("run")).chosen
    pairs = list(accumulate(len(journal.kernels) for journal in chosen))
    learned = dict.fromkeys(int(item.chosen_by.split()[3]) for item in chosen if item.chosen_by.startswith("a model"))
    of_problems = [1 + pairs.index(of_pairs) for of_pairs in learned]
    assert all(6 <= problems < 12 for problems in of_problems)
    assert all(later >= 1.3 * earlier for earlier, later in pairwise(learned))
    assert len(learned) <= models <= len(learned) + 1  # the last one is of twelve problems, and makes no choice


def check_looks(runs: int) -> None:
    """Check that each run of the journal has two reference measurements, the last after its first pass."""
    journal = read_journal(Path("run"))
    assert len(journal.references) == 2 * runs
    last = journal.references[-1]
    rows = [row for row in journal.rows if row.run_id == last.run_id]
    assert last.time > max(row.time for row in rows if not row.remeasured)


@pytest.mark.slow
@pytest.mark.usefixtures("small_priors")
def test_a_killed_run_continues_selecting(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs measured before are not measured again, and are used for later choices."""
    assert run([*args, "--stop-gain", "100"]) == ExitCode.OK
    capsys.readouterr()
    journal = Path("run/journal.jsonl")
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    results = [i for i, line in enumerate(lines) if json.loads(line)["kind"] == "result"]
    journal.write_text("".join(lines[: results[30] + 1]) + lines[results[31]][:40], encoding="utf-8")
    before = read_journal(Path("run")).final_rows()
    assert run(["bench", "--resume", "--out", "run", "--json", "--stop-gain", "100"]) == ExitCode.OK
    assert document(capsys)["ended"] == "gain"
    rows = [row for row in read_journal(Path("run")).rows if not row.remeasured]
    assert len({(row.problem, row.kernel) for row in rows}) == len(rows)
    assert {(row.problem, row.kernel) for row in before} < {(row.problem, row.kernel) for row in rows}


@pytest.mark.parametrize(
    ("options", "says"), [(["--plan", "3"], "omit one"), (["--kernels", "sample:5"], "omit --kernels")]
)
def test_conflicting_selections_are_refused(
    args: list[str], options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a usage error in one line; nothing is created."""
    assert run([*args, *options]) == ExitCode.USAGE
    assert says in capsys.readouterr().err
    assert not Path("run").exists()
