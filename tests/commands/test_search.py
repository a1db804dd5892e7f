"""`ckh search` on the command line: by models, by measuring real host kernels, bad options."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.limits import Stop, StopReason
from ckh.cli import run
from ckh.commands.search.measured import print_measured
from ckh.data.dataset import read_dataset
from ckh.data.journal import ResultRow, read_journal
from ckh.errors import ExitCode
from ckh.ops import operation
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.problem import ConvProblem, parse_conv_problem
from ckh.problems import Direction
from ckh.schema import Status
from ckh.search.measuring import MeasuredSearch, Measurer
from ckh.search.settings import SearchSettings
from ckh.search.space import KernelSpace, Space
from tests.learn.conftest import HOST, saved
from tests.refusals import expect_error, expect_values, expect_warning
from tests.runs import ANOTHER, writer_behind_another

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.ops.base import Kernel

SMALL = ["--c", "16", "--hi", "7"]
GEMM = ["--m", "32", "--n", "64", "--k", "64"]
# The same problems by their texts.
SMALL_TEXT = ConvProblem(Direction.FORWARD, 1, 16, k=16, g=1, hi=7, wi=7, y=3, x=3, pad_h=1, pad_w=1).canonical()
GEMM_KERNEL = "gemm_fp32_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_4x1x1_16x16x16"
GEMM_TEXT = GemmProblem(32, 64, 64, "fp32").canonical()


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache folder of compiled kernels, shared by all tests."""
    return tmp_path_factory.mktemp("search-cache")


@pytest.fixture(autouse=True)
def alone(host_asked: None, tmp_path: Path, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test's models, small spaces, and an empty current folder."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(kernel_cache))
    (tmp_path / "models").mkdir()
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setattr("ckh.files.paths.data_dir", lambda name: tmp_path / "shipped" / name)
    monkeypatch.setattr("ckh.search.measuring.SPACE_LIMIT", 1500)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model of forward convolutions in the search path."""
    (tmp_path / "models").mkdir(exist_ok=True)
    return saved(tmp_path / "models" / "mine")


def document(capsys: pytest.CaptureFixture[str], *args: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """The JSON document of a search."""
    assert run(["search", *args, "--json"]) == code
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def fails(capsys: pytest.CaptureFixture[str], code: ExitCode, *args: str) -> str:
    """The stderr lines of a search that fails with one error, prints no result and writes nothing."""
    assert run(["search", *args]) == code
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert "Traceback" not in stderr
    assert list(Path().iterdir()) == []
    assert len([line for line in stderr.splitlines() if line.startswith("error: ")]) == 1
    return stderr


def measured(out: str = "run") -> list[ResultRow]:
    """Rows of a run, except remeasurements."""
    return [row for row in read_journal(Path(out)).rows if not row.remeasured]


def test_a_model_search_finds_the_best_kernel(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best is at least as good as predict's; all listed kernels are legal; nothing is written."""
    result = document(capsys, *SMALL, "--top", "60")
    assert run(["predict", *SMALL, "--top", "1", "--json"]) == ExitCode.OK
    predicted = json.loads(capsys.readouterr().out)["kernels"][0]
    assert result["first_choice"] == {name: predicted[name] for name in result["first_choice"]}
    assert result["kernels"][0]["score"] >= predicted["score"]
    assert len(result["kernels"]) == 60
    space = result["space"]
    assert space["pool"] == 300 < space["distinct"] < space["kernels"]
    problem = parse_conv_problem(result["problem"])
    assert all(CONV_RULES.check(parse_kernel_name(item["kernel"]), HOST, problem) == [] for item in result["kernels"])
    assert {item["candidate"] for item in result["kernels"]} == {True, False}
    assert list(Path().iterdir()) == []


def test_the_table_has_the_best_kernels(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json the best kernels are a table with complete names, below the searched space."""
    args = [*SMALL, "--top", "3"]
    result = document(capsys, *args)
    assert run(["search", *args]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    names = [line.split()[3] for line in out.splitlines() if line[:2] in {"1 ", "2 ", "3 "}]
    assert names == [item["kernel"] for item in result["kernels"]]
    expect_values(out, f"{result['space']['kernels']} kernels", 300)
    expect_values(out, result["space"]["distinct"])


def test_a_search_describes_its_speeds(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in predict: speeds that do not fall with the ranking, and none far outside of the training data."""
    for args, is_far in ((SMALL, False), (["--c", "8000000", "--k", "8"], True)):
        result = document(capsys, *args, "--top", "60")
        speeds = [item["tflops"] for item in result["kernels"]]
        assert all((speed is None) is is_far for speed in speeds)
        assert (result["beyond_training"] is not None) is is_far
        assert result["predictions_in_order"] is (is_far or speeds == sorted(speeds, reverse=True))
        assert run(["search", *args, "--top", "60"]) == ExitCode.OK
        out = capsys.readouterr().out
        assert ("c = 8000000" in out) is is_far
        assert ("ranking model" in out) is not result["predictions_in_order"]
    assert not document(capsys, *SMALL, "--top", "60")["predictions_in_order"]


@pytest.mark.parametrize("option", ["--evaluations 9", "--seed 1", "--budget 10m", "--out run", "--cold", "--measure"])
def test_measuring_options_name_their_command(model: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model scores everything: the hint names the command with the option, also for the earlier --measure."""
    error = fails(capsys, ExitCode.USAGE, *SMALL, *option.split())
    expect_error(error, "inapplicable-option", option.split(maxsplit=1)[0], "ckh search measure")


@pytest.mark.parametrize(
    ("args", "now"),
    [
        ("--set 20 --data x.parquet", "ckh search set"),
        ("--keep 0.9", "ckh search set"),
        (f"measure {SMALL_TEXT} --gpu 1", "--gpus"),
    ],
)
def test_wrong_options_suggest_the_right_ones(args: str, now: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the subcommand or the similar option."""
    assert now in fails(capsys, ExitCode.USAGE, *args.split())


@pytest.mark.parametrize("option", ["--c 16", "--top 3", "--wide", "--require measured"])
def test_options_of_a_subcommand_come_after_it(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are not silently ignored before it."""
    expect_error(fails(capsys, ExitCode.USAGE, *option.split(), "measure"), "usage", "ckh search measure")


def test_without_a_model_search_measures(capsys: pytest.CaptureFixture[str]) -> None:
    """The hint names the command that needs no model."""
    assert run(["search", *GEMM]) == ExitCode.BAD_DATA
    err = capsys.readouterr().err
    expect_error(err, "no-model", "gemm_universal fp32 on host", "ckh search measure")


@pytest.mark.slow
def test_measured_journals_are_convertible(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five proposals are five rows of legal kernels, the best are remeasured, and convert reads the journal.

    With a model the search begins with predict's first choice, and prints its time relative to the best.
    """
    result = document(capsys, "measure", SMALL_TEXT, "--evaluations", "5", "--top", "2", "--out", "run")
    rows = measured()
    assert (result["evaluations"], len(rows), result["ended"]) == (5, 5, "complete")
    assert {row.status for row in rows} <= {Status.OK, Status.UNSTABLE}
    problem = parse_conv_problem(result["problem"])
    assert all(CONV_RULES.check(parse_kernel_name(row.kernel), HOST, problem) == [] for row in rows)
    journal = read_journal(Path("run"))
    assert journal.runs[0].kernels == "search:surrogate"
    assert [end.reason for end in journal.ends] == ["complete"]
    again = {row.kernel: row.latency_ms for row in journal.rows if row.remeasured}
    assert len(result["kernels"]) == 2
    assert all(again[item["kernel"]] == item["latency_ms"] for item in result["kernels"])
    assert run(result["next"].split()[1:]) == ExitCode.OK
    frame = read_dataset(Path("run.parquet")).frame
    assert sorted(frame["kernel"]) == sorted(row.kernel for row in rows)
    capsys.readouterr()
    assert run(["predict", *SMALL, "--top", "1", "--json"]) == ExitCode.OK
    first, choice = json.loads(capsys.readouterr().out)["kernels"][0], rows[0].kernel
    assert choice in (first["kernel"], *first["tied"])
    assert (result["first_choice"]["kernel"], result["first_choice"]["latency_ms"]) == (choice, again[choice])
    assert result["kernels"][0]["latency_ms"] == min(filter(None, again.values()))
    assert result["ratio"] == pytest.approx((again[choice] or 0) / result["kernels"][0]["latency_ms"])
    assert result["ratio"] >= 1


@pytest.mark.slow
def test_a_gemm_is_measured_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a model there is a note and no comparison, and the table's last line is the next command."""
    assert run(["search", "measure", GEMM_TEXT, "--evaluations", "2", "--out", "run"]) == ExitCode.OK
    out, err = capsys.readouterr()
    expect_values(err, "gemm_universal fp32 on host")
    assert out.splitlines()[-1] == "next: ckh convert run --out run.parquet"
    assert "first choice" not in out
    assert len(measured()) == 2
    assert read_journal(Path("run")).runs[0].op == "gemm_universal"
    assert run(["convert", "run", "--out", "run.parquet"]) == ExitCode.OK


@pytest.mark.slow
def test_failures_count_against_the_budget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If kernels do not compile there are as many rows as evaluations, and the exit code of no kernel."""
    failing = Path("cxx")
    simplest = '*--version*) echo "cxx 1.0";; */least.cpp*) exec g++ "$@";;'
    failing.write_text(f'#!/bin/sh\ncase "$*" in {simplest} *) echo "error: no" >&2; exit 1;; esac\n')
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing.resolve()))
    assert run(["search", "measure", SMALL_TEXT, "--evaluations", "3", "--out", "run", "--json"]) == ExitCode.NO_KERNEL
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["statuses"] == {"compile_error": 3}
    assert (result["kernels"], result["first_choice"], result["ratio"]) == ([], None, None)
    expect_error(err, "no-working-kernel", 3)
    assert len(measured()) == 3


@pytest.mark.parametrize("as_json", [False, True])
def test_measurements_on_a_shared_gpu_are_a_warning(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """With the number of the search's measurements while others had memory on the GPU; nothing if there are none."""
    problem, kernel = GemmProblem(32, 64, 64, "fp32"), operation("gemm_universal").kernels.parse(GEMM_KERNEL)
    space = KernelSpace((kernel,), 1, 0, Space(("k",), [[1]]))
    for others in ((0.0, 0.0), (1.0, 0.0), (2.0, 1.0)):
        rows = tuple(
            ResultRow("run", GEMM_TEXT, GEMM_KERNEL, Status.OK, "", 1.0, 1.0, 0.0, card={"other_processes": count})
            for count in others
        )
        search = MeasuredSearch(
            problem, None, space, Path("run"), StopReason.COMPLETE, rows, best=rows[:1], first_choice=None, wall_s=1.0
        )
        print_measured(search, SearchSettings(), as_json=as_json)
        said = capsys.readouterr().err
        if count := sum(other > 0 for other in others):
            expect_warning(said, "shared-gpu", count)
        assert said.count("[shared-gpu]") == (count > 0)


def test_rows_of_a_concurrent_search_are_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was empty when the search began, but is not when it would measure, is refused and unchanged."""
    monkeypatch.setattr("ckh.search.measuring.JournalWriter", writer_behind_another)
    assert run(["search", "measure", SMALL_TEXT, "--evaluations", "3", "--out", "run"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "written-meanwhile", "run/journal.jsonl")
    assert read_journal(Path("run")).runs == (ANOTHER,)


@pytest.mark.slow
def test_an_interrupted_search_keeps_its_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after two kernels gives code 130, both rows, and the better of them as measured."""
    measure = Measurer.measure
    done: list[float | None] = []

    def interrupted(self: Measurer, index: int) -> float | None:
        done.append(measure(self, index))
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return done[-1]

    monkeypatch.setattr(Measurer, "measure", interrupted)
    args = ["measure", SMALL_TEXT, "--evaluations", "50", "--out", "run"]
    result = document(capsys, *args, code=ExitCode.INTERRUPTED)
    assert (result["ended"], result["evaluations"]) == ("interrupted", 2)
    assert [row.latency_ms for row in measured()] == done
    assert read_journal(Path("run")).ends[-1].reason == "interrupted"
    assert [item["remeasured"] for item in result["kernels"]] == [False, False]
    assert run(["convert", "run", "--out", "run.parquet"]) == ExitCode.OK


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "evaluations"), [(1, 2), (3, 6)])
def test_upcoming_kernels_are_compiled_together(
    jobs: int, evaluations: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three compilers get the requested kernel and the next two, one gets each alone; the same kernels are measured."""
    build = KernelBuilder.build
    together: list[list[Kernel]] = []

    def counted(self: KernelBuilder, kernels: Sequence[Kernel], given: int, *others: Any) -> dict[Kernel, Built]:
        together.append(list(kernels))
        assert given == jobs
        return build(self, kernels, given, *others)

    monkeypatch.setattr(KernelBuilder, "build", counted)
    args = ["measure", SMALL_TEXT, "--jobs", str(jobs), "--out", "run"]
    assert document(capsys, *args, "--evaluations", str(evaluations))["evaluations"] == evaluations
    assert [len(kernels) for kernels in together] == [jobs] * 2
    assert [row.kernel for row in measured()] == [full_name(kernel) for kernels in together for kernel in kernels]


@pytest.mark.slow
def test_a_time_budget_ends_a_search(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is used up, the search ends, the best are still compared, and the code is 0."""
    measure = Measurer.measure
    done: list[float | None] = []

    class AfterOne(Stop):
        """A stop condition that is true after one measurement."""

        def __init__(self, budget_s: float | None = None) -> None:
            super().__init__()
            self._has_limit = budget_s is not None

        @property
        def reason(self) -> StopReason:
            return StopReason.BUDGET if self._has_limit and done else super().reason

    def counted(self: Measurer, index: int) -> float | None:
        done.append(measure(self, index))
        return done[-1]

    monkeypatch.setattr(Measurer, "measure", counted)
    monkeypatch.setattr("ckh.search.measuring.Stop", AfterOne)
    result = document(capsys, "measure", SMALL_TEXT, "--evaluations", "50", "--budget", "1h", "--out", "run")
    assert (result["ended"], result["evaluations"]) == ("budget", 1)
    assert [item["remeasured"] for item in result["kernels"]] == [True]
    assert read_journal(Path("run")).ends[-1].reason == "budget"


def test_a_zero_time_budget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends before its first measurement reports it, with the exit code of no kernel."""
    assert run(["search", "measure", SMALL_TEXT, "--budget", "0.000001s", "--out", "run"]) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "not-measured")


def test_a_run_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a foreign journal is wrong usage, and unchanged."""
    Path("run").mkdir()
    Path("run/journal.jsonl").write_text("{}\n", encoding="utf-8")
    assert run(["search", "measure", SMALL_TEXT, "--out", "run"]) == ExitCode.USAGE
    assert "run/journal.jsonl exists" in capsys.readouterr().err
    assert Path("run/journal.jsonl").read_text(encoding="utf-8") == "{}\n"


@pytest.mark.parametrize(
    ("args", "exit_code", "code", "values"),
    [
        ("--c 0", ExitCode.USAGE, "out-of-range", ["C ", "1"]),
        ("--m 4 --n 4", ExitCode.USAGE, "missing-option", ["--k"]),
        ("--m 4 --n 4 --k 4 --hi 3", ExitCode.USAGE, "inapplicable-option", ["gemm_universal", "--hi"]),
        ("--c 8 --split-k 2", ExitCode.USAGE, "inapplicable-option", ["grouped_conv", "--split-k"]),
        ("--op aiter_moe", ExitCode.USAGE, "unsupported", ["aiter_moe"]),
        ("--op nothing", ExitCode.USAGE, "unknown-op", ["'nothing'"]),
        ("--arch gfx000", ExitCode.USAGE, "unknown-arch", ["'gfx000'"]),
        (f"measure {SMALL_TEXT} --budget soon", ExitCode.USAGE, "bad-number", ["'soon'"]),
        (f"measure {SMALL_TEXT} --device host --gpus 1", ExitCode.USAGE, "inapplicable-option", ["host", "gpus"]),
        (f"measure {SMALL_TEXT} --device hip --gpus 0,1", ExitCode.USAGE, "out-of-range", ["--gpus"]),
        (f"measure {SMALL_TEXT} --device hip --arch gfx000", ExitCode.USAGE, "unknown-arch", ["'gfx000'"]),
        (f"measure {SMALL_TEXT} --arch gfx942 --hipcc /no/hipcc", ExitCode.NO_DEVICE, "no-compiler", ["/no/hipcc"]),
        ("--model none", ExitCode.BAD_DATA, "no-model", ["none"]),
        (f"measure {SMALL_TEXT} --model none", ExitCode.BAD_DATA, "no-model", ["none"]),
        (f"measure {SMALL_TEXT.replace('fp32', 'fp16')}", ExitCode.NO_KERNEL, "no-kernel", ["host"]),
        ("measure --n 16 --c 256", ExitCode.USAGE, "inapplicable-option", ["--n", "PROBLEM"]),
        ("measure resnet50", ExitCode.USAGE, "bad-problem", ["resnet50"]),
        ("measure nothing.csv", ExitCode.USAGE, "no-file", ["nothing.csv"]),
    ],
)
def test_invalid_input_is_refused(
    args: str, exit_code: ExitCode, code: str, values: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is an error with its exit code, and nothing is written."""
    expect_error(fails(capsys, exit_code, *args.split()), code, *values)


@pytest.mark.parametrize("args", ["--evaluations 0", "--top 0", "--seed -1", "--device cuda"])
def test_option_values_of_the_wrong_type(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid value of an option is wrong usage, too."""
    assert run(["search", "measure", SMALL_TEXT, *args.split()]) == ExitCode.USAGE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert args.split(maxsplit=1)[0] in stderr


def test_a_named_model_must_fit(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--model must be for the direction, both when scoring and when measuring."""
    backward = SMALL_TEXT.replace("forward", "bwd_data")
    for more in (["--variant", "bwd_data"], ["measure", backward]):
        error = fails(capsys, ExitCode.USAGE, *more, "--model", str(model))
        expect_error(error, "model-mismatch", "forward fp32 on host", "bwd_data")


@pytest.mark.slow
def test_search_without_a_model_is_scored_by_the_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a model the estimate scores the whole space, marked NOT MEASURED; --require measured refuses."""
    words = ["search", "--m", "128", "--n", "512", "--k", "1024", "--arch", "gfx950", "--dtype", "bf16", "--top", "3"]
    assert run(words) == ExitCode.OK
    text = capsys.readouterr().out
    assert "NOT MEASURED" in text
    problem = GemmProblem(128, 512, 1024, "bf16").canonical()
    assert f"next     ckh search measure {problem} --arch gfx950\n" in text
    assert run([*words, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["not_measured"]["basis"] == "estimate"
    scores = [item["score"] for item in document["kernels"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] >= document["first_choice"]["score"]
    assert run([*words, "--require", "measured"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-model", "gemm_universal bf16 on gfx950")
