"""`ckh bench` on the command line: real host kernels, kills, signals, bad options."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.compilation.kernel_cache import Compilation, KernelCache
from ckh.bench.planning.plan import full_name, make_plan
from ckh.bench.planning.registry import read_registry
from ckh.bench.supervision import campaign
from ckh.bench.supervision.driver import build_and_load
from ckh.cli import run
from ckh.data.journal import JournalWriter, read_journal
from ckh.errors import ExitCode
from ckh.ops import operation
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.bench.fake_hipcc import FakeHipcc, write_headers
from tests.refusals import expect_error, expect_values, expect_warning
from tests.runs import ANOTHER, writer_behind_another

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.bench.planning.plan import Plan
    from ckh.bench.supervision.driver import BuildReport, Driver
    from ckh.ops.base import Kernel

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = [
    ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()
    for size in (7, 8, 9)
]
KERNELS = [full_name(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("host"))[:240:60]]
PAIRS = Counter((problem, kernel) for problem in PROBLEMS for kernel in KERNELS)
MANY_SAMPLES = ["--samples", "100"]  # so that 12 pairs last long enough to be interrupted


@pytest.fixture(scope="session")
def bench_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache folder of compiled kernels, shared by all tests."""
    return tmp_path_factory.mktemp("bench-cache")


@pytest.fixture
def args(bench_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of a run of three problems and four kernels into `run`, in an empty folder."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(bench_cache))
    (tmp_path / "problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
    (tmp_path / "kernels").write_text("# four of them\n" + "\n".join(KERNELS) + "\n\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return ["bench", "--device", "host", "--problems", "problems.txt", "--kernels", "kernels", "--out", "run"]


@pytest.mark.parametrize("option", ["--yes", "-y", "--verbose", "-v"])
def test_a_removed_option_is_answered(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what to do instead."""
    assert run(["bench", option]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "inapplicable-option", option, "omit it")


@pytest.mark.slow
def test_a_file_system_without_locks_is_measured_on(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some NFS and Lustre mounts: all pairs are measured, and only the journal is left."""

    def flock(_file: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert run([*args, "--samples", "1"]) == ExitCode.OK
    assert [path.name for path in Path("run").iterdir()] == ["journal.jsonl"]
    assert Counter((row.problem, row.kernel) for row in read_journal(Path("run")).final_rows()) == PAIRS


def expect_clear_line(
    command: Sequence[str], exit_code: ExitCode, code: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Expect an error and a hint on stderr, nothing on stdout, and no new file."""
    before = sorted(Path().iterdir())
    assert run([*command]) == exit_code
    out, err = capsys.readouterr()
    assert out == ""
    expect_error(err, code, value)
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2
    assert sorted(Path().iterdir()) == before


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON document on stdout."""
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def first_pass(out: Path = Path("run")) -> Counter[tuple[str, str]]:
    """Number of rows of each pair, except remeasured leaders."""
    return Counter((row.problem, row.kernel) for row in read_journal(out).rows if not row.remeasured)


def start(args: Sequence[str]) -> subprocess.Popen[str]:
    """`ckh` as a process, in the current folder, once it has journalled three results."""
    run(["bench", "--device", "host", *args[3:7], "--out", "warm"])  # compile
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "ckh", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    journal, deadline = Path("run/journal.jsonl"), time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b'"kind": "result"') >= 3:
            return process
        time.sleep(0.002)
    raise AssertionError(f"no results: {process.communicate()}")


@pytest.mark.slow
def test_the_planned_pairs_are_measured(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """--dry-run prints the pairs of a run and creates no folder; they get right rows, and the summary counts them."""
    assert run([*args, "--dry-run", "--json"]) == ExitCode.OK
    before = document(capsys)
    assert (before["pairs"], before["problems"], before["kernels"], before["pairs_done"]) == (12, 3, 4, 0)
    assert not Path("run").exists()
    assert run([*args, "--json"]) == ExitCode.OK
    summary = document(capsys)
    assert first_pass() == PAIRS
    rows = read_journal(Path("run")).rows
    assert {str(row.status) for row in rows} <= {"ok", "unstable"}
    assert all(row.latency_ms and row.latency_min_ms and row.latency_min_ms <= row.latency_ms for row in rows)
    assert sum(summary["statuses"].values()) == 12
    assert summary["remeasured"] == len(rows) - 12
    expected = {"out": "run", "ended": "complete", "pairs_left": 0, "worker_restarts": 0}
    assert {name: summary[name] for name in expected} == expected
    assert summary["next"] == "ckh convert run --out run.parquet"
    assert 0 <= summary["orchestration"] <= 1
    assert run(["bench", "--resume", "--out", "run", "--dry-run", "--json"]) == ExitCode.OK
    after = document(capsys)
    assert (after["pairs"], after["pairs_done"], after["to_compile"]) == (0, 12, 0)
    assert run([*args[:-1], "other", "--dry-run"]) == ExitCode.OK
    assert ["pairs", "to", "measure", "12"] in cells(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("kernels", "count"), [("sample:5", 15), ("sample:1000", 900), ("*_compv3_*_16x64x64_*", 12), ("all", 900)]
)
def test_kernel_selections(args: list[str], kernels: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A sample, a pattern and all give the requested pairs; 300 kernels apply to each problem."""
    assert run([*args, "--kernels", kernels, "--dry-run", "--json"]) == ExitCode.OK
    outlook = document(capsys)
    assert outlook["pairs"] == count
    assert not Path("run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_prints_how_to_continue(
    args: list[str], number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGINT, SIGTERM and SIGHUP end a run with code 130 and its summary; the printed command completes it."""
    before = signal.signal(number, signal.default_int_handler)  # a process started by nohup ignores SIGHUP
    process = start([*args, *MANY_SAMPLES, "--json"])
    signal.signal(number, before)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in err
    summary = json.loads(out)
    assert summary["ended"] == "interrupted"
    assert summary["pairs_left"] == 12 - first_pass().total() > 0
    assert read_journal(Path("run")).ends[-1].reason == "interrupted"
    command = summary["next"].split()
    assert command == ["ckh", "bench", "--resume", "--out", "run", "--device", "host"]
    capsys.readouterr()
    assert run([*command[1:], "--json"]) == ExitCode.OK
    assert document(capsys)["pairs_left"] == 0
    assert first_pass() == PAIRS


@pytest.mark.slow
def test_an_exhausted_budget_is_no_failure(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """--budget ends a run with code 0 and the number of remaining pairs, and --resume measures them."""
    assert run([*args, "--budget", "0.05s", "--json"]) == ExitCode.OK
    summary = document(capsys)
    assert summary["ended"] == "budget"
    assert summary["pairs_left"] == 12 - sum(summary["statuses"].values()) > 0
    assert summary["next"] == "ckh bench --resume --out run --device host"
    assert run(["bench", "--resume", "--out", "run"]) == ExitCode.OK
    assert first_pass() == PAIRS


@pytest.mark.slow
def test_a_budget_without_any_measurement_is_reported(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Code 0, a warning with a remedy, and no statistics of measurements."""
    assert run([*args, "--budget", "0.001s"]) == ExitCode.OK
    out, err = capsys.readouterr()
    expect_warning(err, "budget", "--resume", "--plan auto")
    assert "orchestration" not in out
    assert run(["bench", "--resume", "--out", "run"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert "[budget]" not in err
    assert "orchestration" in out


@pytest.mark.slow
def test_a_run_is_not_overwritten(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A second run into the same folder needs --resume or --force; otherwise the journal is unchanged."""
    assert run(args) == ExitCode.OK
    before = Path("run/journal.jsonl").read_bytes()
    out, err = capsys.readouterr()
    assert ["pairs", "left", "0"] in cells(out)
    assert out.splitlines()[-1] == "next: ckh convert run --out run.parquet"
    expect_values(err, 12, 4, 3)
    assert run(args) == ExitCode.USAGE
    stderr = capsys.readouterr().err
    expect_error(stderr, "output-exists", "run/journal.jsonl")
    expect_values(stderr, "--resume", "--force")
    assert Path("run/journal.jsonl").read_bytes() == before
    assert run([*args, "--resume", "--force"]) == ExitCode.USAGE
    assert run([*args, "--force"]) == ExitCode.OK
    assert first_pass() == PAIRS
    assert len(read_journal(Path("run")).runs) == 1
    assert [path.name for path in Path("run").iterdir()] == ["journal.jsonl"]
    Path("run/journal.jsonl").write_text("my diary\n", encoding="utf-8")
    assert run([*args, "--force"]) == ExitCode.USAGE
    assert Path("run/journal.jsonl").read_text(encoding="utf-8") == "my diary\n"


@pytest.mark.parametrize("left", [b"", b'{"kind": "ru', b'{"kind": "run", "run_id": "2026'])
def test_a_journal_without_a_run_is_not_resumed_but_started(
    args: list[str], left: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a kill at the very start --resume is refused, and a new run needs no force.

    Resuming would start a run with defaults, i.e. forward and another set of problems.
    """
    Path("run").mkdir()
    Path("run/journal.jsonl").write_bytes(left)
    assert run(["bench", "--resume", "--out", "run"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "no-run", "run", "--resume")
    assert Path("run/journal.jsonl").read_bytes() == left
    assert run(args) == ExitCode.OK
    assert first_pass() == PAIRS


@pytest.mark.parametrize("content", [b"{}\n", b'{"kind": "end"}\n', b"\0" * 100 + b"\n"])
def test_foreign_files_are_neither_resumed_nor_replaced(
    args: list[str], content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file without a run at its start is unchanged, and is bad data for --resume."""
    Path("run").mkdir()
    Path("run/journal.jsonl").write_bytes(content)
    assert run([*args, "--resume"]) == ExitCode.BAD_DATA
    assert run([*args, "--force"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "foreign-output", "run/journal.jsonl")
    assert Path("run/journal.jsonl").read_bytes() == content


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--variant", "bwd_data"], ["--variant", "bwd_data", "forward"]),
        (["--problems", "resnet50"], ["--problems", "resnet50", "problems.txt"]),
        (["--kernels", "all"], ["--kernels", "all", "kernels"]),
        (["--samples", "7"], ["--samples", "7", "5"]),
        (["--seed", "1"], ["--seed", "1", "0"]),
        (["--split-k", "1,2"], ["--split-k", "1,2", "1"]),
        (["--pad-channels"], ["--pad-channels", "True", "none"]),
        (["--registry", "r.json"], ["--registry", "r.json", "none"]),
        (["--op", "gemm_universal"], ["--op", "gemm_universal", "grouped_conv"]),
    ],
)
def test_options_contradicting_the_run_are_refused(
    args: list[str], options: list[str], values: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run keeps its settings: another value is an error that names both, and nothing is written."""
    assert run([*args, "--budget", "0.05s"]) == ExitCode.OK
    before = Path("run/journal.jsonl").read_bytes()
    capsys.readouterr()
    assert run(["bench", "--resume", "--out", "run", *options]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "run-mismatch", *values)
    assert Path("run/journal.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_run_is_resumed_from_anywhere(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pairs are in the journal: input files may be missing or changed, and the working folder another one."""
    assert run([*args, "--budget", "0.05s"]) == ExitCode.OK
    assert first_pass() != PAIRS
    Path("problems.txt").write_text(PROBLEMS[0].replace("_n1_", "_n2_"), encoding="utf-8")
    capsys.readouterr()
    Path("kernels").write_text(KERNELS[0], encoding="utf-8")
    assert run([*args, "--resume"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "run-mismatch", 1, 12, "run")
    Path("kernels").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(["bench", "--resume", "--out", "../run"]) == ExitCode.OK
    assert first_pass(tmp_path / "run") == PAIRS


@pytest.mark.slow
def test_runs_of_earlier_versions_are_resumed(args: list[str]) -> None:
    """Their journals have no plan: it is made again from the recorded settings, and journalled."""
    assert run([*args, "--budget", "0.05s"]) == ExitCode.OK
    path = Path("run/journal.jsonl")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    del lines[0]["pairs"]
    old = [line for line in lines if line["kind"] not in {"plan", "task"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in old), encoding="utf-8")
    assert run(["bench", "--resume", "--out", "run", "--budget", "0.05s"]) == ExitCode.OK
    Path("problems.txt").unlink()
    Path("kernels").unlink()
    assert run(["bench", "--resume", "--out", "run"]) == ExitCode.OK
    assert first_pass() == PAIRS


@pytest.mark.slow
def test_a_run_of_failures_is_no_success(
    args: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve rows without a time: exit code 5 with the reason, also if nothing is left to do."""
    compiler = tmp_path / "c++"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in */least.cpp*) ;; *.cpp*) echo "error: no" >&2; exit 1;; esac\nexec g++ "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    assert run(args) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "no-working-kernel", 12, "compile_error", "error: no", "run")
    assert {str(row.status) for row in read_journal(Path("run")).rows} == {"compile_error"}
    assert run(["bench", "--resume", "--out", "run"]) == ExitCode.NO_KERNEL


def test_two_runs_do_not_share_a_journal(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """While a run writes its journal, another one in the same folder is refused."""
    first = JournalWriter(Path("run"))
    for options in ([], ["--force"]):
        assert run([*args, *options]) == ExitCode.USAGE
        expect_error(capsys.readouterr().err, "in-use", "run/journal.jsonl")
        assert Path("run/journal.jsonl").read_bytes() == b""
    first.close()
    assert run([*args, "--budget", "0.05s"]) == ExitCode.OK
    first = JournalWriter(Path("run"))
    before = first.path.read_bytes()
    for options in (["--resume"], ["--force"]):
        capsys.readouterr()
        assert run([*args, *options]) == ExitCode.USAGE
        expect_error(capsys.readouterr().err, "in-use", "run/journal.jsonl")
        assert first.path.read_bytes() == before
    first.close()


def test_the_journal_of_a_concurrent_run_is_not_extended(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal of a run that began and ended while this one was planned is not modified."""
    monkeypatch.setattr(campaign, "JournalWriter", writer_behind_another)
    assert run(args) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "written-meanwhile", "run/journal.jsonl")
    assert read_journal(Path("run")).runs == (ANOTHER,)


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "value"),
    [
        (["--kernels", "sample:0"], ExitCode.USAGE, "bad-number", "sample:0"),
        (["--model", "models"], ExitCode.USAGE, "inapplicable-option", "--model"),
        (["--plan", "3", "--model", "nowhere"], ExitCode.BAD_DATA, "no-model", "nowhere"),
        (["--kernels", "*_nothing_*"], ExitCode.USAGE, "no-match", "300"),
        (["--kernels", "problems.txt"], ExitCode.USAGE, "unknown-kernel", "problems.txt:1: "),
        (["--kernels", "empty.txt"], ExitCode.USAGE, "empty", "empty.txt"),
        (["--problems", "resnet51"], ExitCode.USAGE, "unknown-set", "'resnet51'"),
        (["--problems", "none.csv"], ExitCode.BAD_DATA, "unreadable", "none.csv"),
        (["--problems", "empty.txt"], ExitCode.BAD_DATA, "no-problems", "empty.txt"),
        (["--problems", "kernels.txt"], ExitCode.BAD_DATA, "bad-row", "kernels.txt:1"),
        (["--variant", "bwd_data"], ExitCode.BAD_DATA, "mismatch", "problems.txt:1: variant"),
        (["--ndim", "3"], ExitCode.BAD_DATA, "no-problems", "3D"),
        (["--budget", "soon"], ExitCode.USAGE, "bad-number", "'soon'"),
        (["--budget", "0s"], ExitCode.USAGE, "bad-number", "'0s'"),
        (["--timeout", "-1s"], ExitCode.USAGE, "bad-number", "'-1s'"),
        (["--problems", "resnet50", "--dtype", "fp33"], ExitCode.USAGE, "unknown-dtype", "fp33"),
        (["--problems", "resnet50", "--dtype", "bf16"], ExitCode.USAGE, "unknown-kernel", "kernels"),
        (["--problems", "resnet50", "--dtype", "bf16", "--kernels", "all"], ExitCode.NO_KERNEL, "no-kernel", "bf16"),
        (["--device", "hip"], ExitCode.NO_DEVICE, "no-gpu", "--arch"),
        *(
            (["--device", "hip", option, "2"], ExitCode.USAGE, "inapplicable-option", option)
            for option in ("--leaders", "--rotating")
        ),
        (["--resume"], ExitCode.USAGE, "no-run", "run"),
    ],
)
def test_bad_options_are_one_clear_line(
    args: list[str],
    options: list[str],
    exit_code: ExitCode,
    code: str,
    value: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each is an error with its exit code; nothing is printed on stdout, nothing is written."""
    Path("empty.txt").write_text("\n# nothing\n", encoding="utf-8")
    Path("kernels.txt").write_text("\n".join(KERNELS), encoding="utf-8")
    expect_clear_line([*args, *options], exit_code, code, value, capsys)


@pytest.mark.parametrize("options", [["--samples", "0"], ["--jobs", "0"], ["--ndim", "4"], ["--device", "abacus"]])
def test_values_out_of_range_are_wrong_usage(args: list[str], options: list[str]) -> None:
    """Invalid numbers and names of an option give exit code 2, before anything is written."""
    assert run([*args, *options]) == ExitCode.USAGE
    assert not Path("run").exists()


def test_without_a_compiler_there_is_no_device(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler that does not run is exit code 3, and the error names those that were tried."""
    monkeypatch.setenv("CXX", "/nonexistent")
    assert run(args) == ExitCode.NO_DEVICE
    expect_error(capsys.readouterr().err, "no-compiler", "/nonexistent")
    assert not Path("run").exists()


HIP = ["--device", "hip", "--arch", "gfx942", "--problems", "resnet50"]


@pytest.fixture
def hip(args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of a run for gfx942 on a machine without a GPU and, by default, without tools."""
    for name in ("HIPCC", "ROCM_PATH", "CK_TILE_INCLUDE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CKH_HIP_LIBRARY", "/nonexistent/libamdhip64.so")
    return ["bench", *HIP, "--out", "run"]


@pytest.fixture
def tools(hip: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that makes libraries of all kernels, and headers, both named in the environment."""
    path = FakeHipcc(scratch=8).write(tmp_path / "bin/hipcc")
    monkeypatch.setenv("HIPCC", str(path))
    monkeypatch.setenv("CK_TILE_INCLUDE", str(write_headers(tmp_path / "include")))
    return path


def cells(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


@pytest.mark.parametrize("has_tools", [False, True])
def test_a_run_without_a_gpu_writes_nothing(
    hip: list[str], has_tools: bool, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with exit code 3 and one line, before anything is compiled, with a compiler or without one."""
    if has_tools:
        request.getfixturevalue("tools")
    before = sorted(Path().rglob("*"))
    assert run([*hip, "--rule-set", "tiny"]) == ExitCode.NO_DEVICE
    out, err = capsys.readouterr()
    assert out == ""
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1
    expect_error(err, "no-device", "ROCm")
    assert "Traceback" not in err
    assert sorted(Path().rglob("*")) == before


def test_without_a_gpu_nothing_is_planned(hip: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing GPU is detected first, unless nothing is to be measured."""
    planned = []

    def plan(*arguments: Any) -> Plan:
        planned.append(arguments)
        return make_plan(*arguments)

    monkeypatch.setattr(campaign, "make_plan", plan)
    options = ["--rule-set", "tiny"]
    assert run([*hip, *options]) == ExitCode.NO_DEVICE
    assert planned == []
    assert run([*hip, *options, "--dry-run"]) == ExitCode.OK
    assert len(planned) == 1


def test_without_a_gpu_an_architecture_is_required(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """--cold and --gpus do not name one, but imply hip."""
    for options in (["--cold"], ["--gpus", "0"]):
        assert run(["bench", "--problems", "resnet50", "--out", "run", *options]) == ExitCode.NO_DEVICE
        expect_error(capsys.readouterr().err, "no-gpu", "--arch")
    assert not Path("run").exists()


def test_a_dry_run_needs_no_compiler(hip: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It counts pairs, and reports that kernels cannot be compiled here, with the reason."""
    args = [*hip, "--hipcc", "/nonexistent/hipcc", "--rule-set", "tiny", "--dry-run"]
    assert run([*args, "--json"]) == ExitCode.OK
    outlook = document(capsys)
    expect_values(outlook["missing"], "/nonexistent/hipcc")
    assert outlook["to_compile"] == outlook["kernels"] > 0
    assert outlook["pairs"] > outlook["problems"]
    (group,) = outlook["groups"]
    assert (group["arch"], group["kernels"] >= outlook["kernels"]) == ("gfx942", True)
    assert "forward" in str(group)
    assert run(args) == ExitCode.OK
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 2  # conv1 is padded
    expect_warning(err, "no-compiler", "/nonexistent/hipcc")
    assert "rule set tiny:" in out
    assert ["kernels", "to", "compile", str(outlook["kernels"])] in cells(out)
    assert not Path("run").exists()


@pytest.mark.slow
def test_a_dry_run_with_a_compiler_counts_cached_kernels(
    hip: list[str], tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels compiled by --compile-only need not be compiled again; unsupported ones never are."""
    args = [*hip, "--filter", "pipeline in ['mem', 'compv6'] and tile_m == 16 and not split_image"]
    assert run([*args, "--dry-run", "--json"]) == ExitCode.OK
    before = document(capsys)
    assert before["missing"] == ""
    assert 0 < before["to_compile"] < before["kernels"]
    assert run([*args, "--compile-only"]) == ExitCode.OK
    capsys.readouterr()
    assert run([*args, "--dry-run", "--json"]) == ExitCode.OK
    after = document(capsys)
    assert 0 < after["compile_s"] < 60
    estimate = pytest.approx(0, abs=before["estimate_s"])
    assert after == {**before, "to_compile": 0, "estimate_s": estimate, "compile_s": after["compile_s"]}


def test_a_dry_run_uses_recorded_compile_times(
    hip: list[str], tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any it uses a constant; if a kernel took an hour, all remaining ones are estimated at an hour."""
    args = [*hip, "--dry-run", "--jobs", "2"]
    assert run([*args, "--json"]) == ExitCode.OK
    before = document(capsys)
    assert before["compile_s"] is None
    KernelCache().path("a").parent.mkdir(parents=True)
    (tmp_path / "made").write_bytes(b"a kernel's")
    KernelCache().put("a" * 32, tmp_path / "made", None, Compilation("gfx950", "grouped_conv", "mem", 3600.0))
    assert run([*args, "--json"]) == ExitCode.OK
    after = document(capsys)
    assert after["compile_s"] == 3600.0
    constant_s = 16.0
    assert after["estimate_s"] - before["estimate_s"] == pytest.approx(after["to_compile"] / 2 * (3600 - constant_s))
    assert run(args) == ExitCode.OK
    assert "3600.0 s" in capsys.readouterr().out.splitlines()[-1]


COMPILED = ["--filter", "pipeline in ['compv3', 'compv6'] and not split_image and not double_smem_buffer"]


@pytest.mark.slow
def test_compile_only(hip: list[str], tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every kernel is compiled and loaded, those that the headers lack are unsupported; nothing is measured."""
    assert run([*hip, *COMPILED, "--compile-only", "--json"]) == ExitCode.OK
    result = document(capsys)
    assert (result["arch"], result["ok"]) == ("gfx942", True)
    assert result["wanted"] == len(result["kernels"]) == sum(result["statuses"].values())
    assert set(result["statuses"]) == {"ok", "unsupported"}
    good = [kernel for kernel in result["kernels"] if kernel["status"] == "ok"]
    assert all("_compv3_" in kernel["name"] and Path(kernel["library"]).is_file() for kernel in good)
    assert {kernel["resources"]["scratch_bytes"] for kernel in good} == {8}
    assert run([*hip, *COMPILED, "--compile-only"]) == ExitCode.OK
    out = capsys.readouterr().out
    expect_values(out.splitlines()[0], result["wanted"], "gfx942")
    assert ["with", "scratch", "memory", str(len(good))] in cells(out)
    expect_values(out, "unsupported: ", "mid2025", "compv6")
    assert not Path("run").exists()


def test_a_hanging_compiler_is_named_and_killed(
    hip: list[str], tools: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress line names the kernel being compiled, and one that exceeds --compile-timeout becomes a row."""
    monkeypatch.setattr("ckh.text.progress._FIRST_LINE_S", 0.2)
    monkeypatch.setattr("ckh.text.progress._INTERVAL_S", 0.2)  # the first line may be of the toolchain's check
    FakeHipcc(version="HIP version: 8", hangs="grouped_conv").write(tools)
    name = next(full_name(k) for k in conv_pool(Direction.FORWARD, load_arch("gfx942")) if k.pipeline == "compv3")
    options = ["--kernels", name, "--compile-timeout", "1s", "--compile-only", "--json"]
    assert run([*hip, *options]) == ExitCode.GATE_FAILED
    out, err = capsys.readouterr()
    assert f"compiling kernels: 0/1 {name}" in err
    kernels = json.loads(out)["kernels"]
    assert [kernel["status"] for kernel in kernels] == ["compile_timeout"]
    expect_values(kernels[0]["message"], "1 s")


def test_interrupted_compilation_is_not_a_failed_gate(
    hip: list[str], tools: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGINT while a compiler hangs ends it with code 130 and a summary; a used-up budget is code 0."""
    FakeHipcc(version="HIP version: 9", hangs="grouped_conv").write(tools)
    command = [*hip, *COMPILED, "--compile-only", "--json"]
    assert run([*command, "--budget", "0.1s"]) == ExitCode.OK
    results = [document(capsys)]

    def interrupt(driver: Driver, kernels: Sequence[Kernel]) -> dict[Kernel, BuildReport]:
        os.kill(os.getpid(), signal.SIGINT)
        return build_and_load(driver, kernels)

    monkeypatch.setattr("ckh.bench.supervision.campaign.build_and_load", interrupt)
    assert run(command) == ExitCode.INTERRUPTED
    results.append(document(capsys))
    for result in results:
        assert set(result["statuses"]) <= {"unsupported"}
        assert (result["ok"], len(result["kernels"]) < result["wanted"]) == (True, True)


def two_layers(hip: list[str], channels: int) -> list[str]:
    """A command line for a layer of this many input channels, and one of 64."""
    rows = (f"1,{count},64,1,28,28,3,3,1,1" for count in (channels, 64))
    Path("two.csv").write_text("\n".join(["N,C,K,G,Hi,Wi,Y,X,pad_h,pad_w", *rows]), encoding="utf-8")
    return [*hip, "--problems", "two.csv"]


@pytest.mark.parametrize("channels", [128, 3])
def test_a_registry_is_written_and_chosen_from(
    channels: int, hip: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of --write-registry gives the same kernels with --registry; neither measures or compiles anything.

    Without a registry the layer of 3 channels has kernels of its own, AMD's; a registry's are for both layers.
    """
    command = two_layers(hip, channels)
    choice = ["--filter", "pipeline == 'mem' and tile_m == 16"]
    assert run([*command, *choice, "--write-registry", "mem.json", "--json"]) == ExitCode.OK
    written = document(capsys)
    registry = read_registry(Path("mem.json"), operation("grouped_conv"))
    said = (written["registry"], written["arch"], written["kernels"])
    assert said == ("mem.json", "gfx942", len(registry.kernels))
    assert {(kernel.pipeline, kernel.tile_m) for kernel in registry.kernels} == {("mem", 16)}
    outlooks = []
    for options in (choice, ["--registry", "mem.json"]):
        assert run([*command, *options, "--dry-run", "--json"]) == ExitCode.OK
        outlook = document(capsys)
        outlooks.append((outlook["kernels"], outlook["problems"], outlook["pairs"]))
    count = len(registry.kernels)
    usual = {kernel for kernel in conv_pool(Direction.FORWARD, load_arch("gfx942")) if kernel in {*registry.kernels}}
    assert (len(usual) < count) == (channels == 3)
    assert outlooks == [(count, 2, count if channels == 3 else 2 * count), (count, 2, 2 * count)]
    assert run([*command, "--registry", "mem.json", "--write-registry", "again.json"]) == ExitCode.OK
    expect_values(capsys.readouterr().out, count, "gfx942", "again.json")
    assert Path("again.json").read_bytes() == Path("mem.json").read_bytes()
    assert not Path("run").exists()


@pytest.mark.parametrize("channels", [128, 3])
def test_splits_of_k_go_through_a_registry(channels: int, hip: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Backward weight is planned with each split; with a registry that has them, nothing is duplicated.

    Of the kernels for 3 channels, those whose sums cannot be added atomically run without a split alone.
    """
    choice = ["--variant", "bwd_weight", "--filter", "pipeline == 'mem' and tile_m == 16"]
    weight = [*two_layers(hip, channels), *choice]
    counts = []
    for splits in ("2", "1,4"):
        assert run([*weight, "--split-k", splits, "--dry-run", "--json"]) == ExitCode.OK
        counts.append(document(capsys)["kernels"])
    assert run([*weight, "--split-k", "1,4", "--write-registry", "split.json"]) == ExitCode.OK
    capsys.readouterr()
    kernels = {*read_registry(Path("split.json"), operation("grouped_conv")).kernels}
    alone = [kernel for kernel in kernels if kernel.split_k == 1 and replace(kernel, split_k=4) not in kernels]
    assert bool(alone) == (channels == 3)
    assert all(kernel.streamk or kernel.vector_c % 2 for kernel in alone)
    assert counts[1] == len(kernels) == 2 * counts[0] + len(alone)
    for options in ([], ["--split-k", "1,4"], ["--split-k", "4,1,4"]):
        assert run([*weight, "--registry", "split.json", *options, "--dry-run", "--json"]) == ExitCode.OK
        assert document(capsys)["kernels"] == counts[1]


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "value"),
    [
        (["--filter", "tile_q > 4"], ExitCode.USAGE, "unknown-field", "tile_q"),
        (["--filter", "tile_m >"], ExitCode.USAGE, "bad-filter", "'tile_m >'"),
        (["--filter", ""], ExitCode.USAGE, "bad-filter", ""),
        (["--filter", "__import__('os')"], ExitCode.USAGE, "bad-filter", "__import__"),
        (["--filter", "tile_m == 'mem'"], ExitCode.USAGE, "filter-type", "tile_m"),
        (["--filter", "tile_m > 9999"], ExitCode.NO_KERNEL, "no-kernel", "gfx942"),
        (["--split-k", "two"], ExitCode.USAGE, "bad-number", "--split-k 'two'"),
        (["--split-k", "1,,2"], ExitCode.USAGE, "bad-number", "--split-k '1,,2'"),
        (["--split-k", "-1"], ExitCode.USAGE, "out-of-range", "--split-k '-1'"),
        (["--split-k", ""], ExitCode.USAGE, "bad-number", "--split-k ''"),
        (["--variant", "bwd_weight", "--split-k", "0"], ExitCode.USAGE, "out-of-range", "--split-k '0'"),
        (["--gpus", "first"], ExitCode.USAGE, "bad-number", "--gpus 'first'"),
        (["--gpus", "0"], ExitCode.USAGE, "no-such-gpu", "gfx942"),
        (["--rule-set", "huge"], ExitCode.USAGE, "unknown-name", "huge"),
        (["--registry", "none.json"], ExitCode.BAD_DATA, "unreadable", "none.json"),
        (["--registry", "kernels"], ExitCode.BAD_DATA, "bad-json", "kernels:1: "),
        (["--registry", "other.json"], ExitCode.USAGE, "mismatch", "gfx90a"),
        (["--registry", "x", "--rule-set", "tiny"], ExitCode.USAGE, "conflicting-options", "--registry"),
        (["--arch", "gfx9999"], ExitCode.USAGE, "unknown-arch", "'gfx9999'"),
        (["--arch", ""], ExitCode.USAGE, "unknown-arch", "''"),
        (["--arch", "gfx942:foo+"], ExitCode.USAGE, "unknown-arch", "'gfx942:foo+'"),
        (["--arch", "gfx942;rm"], ExitCode.USAGE, "unknown-arch", "'gfx942;rm'"),
        (["--device", "host"], ExitCode.USAGE, "inapplicable-option", "arch"),
        (["--device", "host", "--cold", "--gpus", "0"], ExitCode.USAGE, "inapplicable-option", "arch, gpus, cold"),
    ],
)
def test_bad_options_of_a_gpu_are_one_clear_line(
    hip: list[str],
    options: list[str],
    exit_code: ExitCode,
    code: str,
    value: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each is an error with its exit code; nothing is printed on stdout, nothing is written."""
    assert run(["bench", *HIP, "--arch", "gfx90a", "--rule-set", "tiny", "--write-registry", "other.json"]) == 0
    capsys.readouterr()
    expect_clear_line([*hip, *options, "--dry-run"], exit_code, code, value, capsys)


def test_a_layer_that_no_kernel_takes_is_padded(hip: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """60 channels run as 64, once, unless that is refused; what no kernel takes is named, others are planned."""
    rgb = "conv_forward_fp16_nhwgc_2d_n1_c60_k64_g1_i64x64_f7x7_s2x2_p3x3_d1x1\n"
    Path("rgb.txt").write_text(rgb, encoding="utf-8")
    args = [*hip, "--problems", "rgb.txt", "--dtype", "fp16", "--dry-run"]
    assert run([*args, "--no-pad-channels"]) == ExitCode.NO_KERNEL
    capsys.readouterr()
    assert run([*args, "--pad-channels", "--json"]) == ExitCode.OK
    pairs = document(capsys)["pairs"]
    assert pairs > 0
    Path("rgb.txt").write_text(rgb + rgb.replace("_c60_", "_c64_"), encoding="utf-8")
    assert run([*args, "--json"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert json.loads(out)["pairs"] == pairs
    assert "1 of 2" in err
    assert "padded" in err
    assert run([*args, "--json", "--no-pad-channels"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert json.loads(out)["pairs"] == pairs
    expect_warning(err, "no-kernel", "1 of 2", rgb.strip())
    Path("rgb.txt").write_text(rgb.replace("_c60_k64_g1_", "_c64_k64_g64_"), encoding="utf-8")
    assert run([*args, "--json", "--rule-set", "tiny"]) == ExitCode.OK
    assert "64 times" in capsys.readouterr().err
    assert run([*args, "--json"]) == ExitCode.OK  # a rule set of its own has kernels of narrow vectors
    assert "padded" not in capsys.readouterr().err
