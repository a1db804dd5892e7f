"""`ckh tune` on the CPU, from a list of shapes to an export."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.compilation.compile import Built, KernelBuilder
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.ops.aiter_gemm.kernel import parse_kernel
from ckh.tune import steps
from ckh.tune.settings import TuneOptions, settings_of
from ckh.tune.tuning import ModelTuning
from tests.jsonschemas import require_described
from tests.ops.aiter_gemm.newer_aiter import table_row, write_aiter
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.tune.steps import TuneStep

KERNEL = "a8w8_bpreshuffle_128x16x32x512_16x16_16x16_32x4x1_32x4x1_1x16x1x8_4x4x1_1x1_intrawave_v1"
SHAPES = "op,count,layers,dtype,layout,m,n,k,split_k\n" + "".join(
    f"gemm_universal,{count},layer{n},fp32,rcr,{m},{n},64,1\n" for count, m, n in ((80, 64, 96), (2, 32, 64))
)


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty user folder, for times that are remembered."""
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """A list of two small matrix products."""
    path = tmp_path / "shapes.csv"
    path.write_text(SHAPES, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("known_host")
def test_a_list_of_shapes_is_tuned(
    shapes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is done once, the gain is of the dataset's times, which predict uses; a second call does nothing."""
    monkeypatch.setattr(steps, "PLAN", ("--kernels", "sample:2"))  # which compile quickly
    out = tmp_path / "tuned"
    line = ["tune", str(shapes), "--device", "host", "--to", "amd-registry", "--out", str(out)]
    assert run([*line, "--budget", "10m"]) == ExitCode.OK
    assert "$ ckh shapes" in capfd.readouterr().err
    assert run([*line, "--budget", "11m", "--json"]) == ExitCode.OK
    printed = capfd.readouterr()
    document = json.loads(printed.out)
    require_described("tune", document)
    assert "ckh bench --resume" in printed.err
    assert "ckh shapes" not in printed.err
    assert [item["count"] for item in document["shapes"]] == [80, 2]
    assert sum(item["share"] for item in document["shapes"]) == pytest.approx(1)
    established = [item for item in document["shapes"] if item["gain"] is not None]  # on a steady machine all
    assert document["established"] == len(established)
    reasons = {item["not_established"] for item in document["shapes"] if item["gain"] is None}
    assert reasons <= {"unstable", "drift"}
    if established:
        today = sum(item["count"] * item["today_ms"] for item in established)
        tuned = sum(item["count"] * item["today_ms"] / item["gain"] for item in established)
        assert (document["today_ms"], document["tuned_ms"]) == pytest.approx((today, tuned))
        assert document["gain"] == pytest.approx(today / tuned)
    assert document["is_complete"]
    assert document["model"] is None
    assert (out / "export" / "README.md").is_file()
    assert [item["predicted_gain"] for item in document["shapes"]] == [None, None]  # no model of two problems
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert f"{document['gain']:.3f}x" in summary if established else all(reason in summary for reason in reasons)
    assert f"ckh convert {out}/run" in summary
    assert run([*line, "--budget", "11m"]) == ExitCode.OK
    assert "$ ckh" not in capfd.readouterr().err
    for item in document["shapes"]:
        assert run(["predict", "--problems", item["problem"], "--arch", "host", "--json"]) == ExitCode.OK
        (answer,) = json.loads(capfd.readouterr().out)["results"]
        assert (answer["kernels"][0]["kernel"], answer["kernels"][0]["measured_latency_ms"]) == (
            item["kernel"],
            item["latency_ms"],
        )


@pytest.mark.slow
@pytest.mark.usefixtures("known_host")
def test_the_kernels_in_use_are_compared(
    shapes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a list, the first that applies to a shape is measured, although the plan has another kernel, and compared."""
    monkeypatch.setattr(steps, "PLAN", ("--kernels", "sample:1"))
    padded = "gemm_universal_fp32_rcr_mem_cshuffle_intrawave_True_True_True_False_64x32x64_2x2x1_16x16x16"
    unpadded = padded.replace("True", "False")
    listed = tmp_path / "in_use.txt"
    listed.write_text(f"{unpadded}\n{padded}\n", encoding="utf-8")
    shapes.write_text(SHAPES.replace("32,64,64", "33,65,64"), encoding="utf-8")
    line = ["tune", str(shapes), "--device", "host", "--today", str(listed), "--out", str(tmp_path / "tuned"), "--json"]
    assert run(line) == ExitCode.OK
    document = json.loads(capfd.readouterr().out)
    require_described("tune", document)
    assert document["today_from"] == str(listed)
    by_problem = {item["problem"]: item for item in document["shapes"]}
    assert {text: item["today"] for text, item in by_problem.items()} == {
        "gemm_fp32_rcr_m64_n96_k64_splitk1": unpadded,
        "gemm_fp32_rcr_m33_n65_k64_splitk1": padded,
    }
    dataset = read_dataset(tmp_path / "tuned" / "measured.parquet")
    for text, item in by_problem.items():
        rows = dataset.frame[[dataset.problem(i).canonical() == text for i in range(len(dataset))]]
        times = dict(zip(rows["kernel"], rows["latency_ms"], strict=True))
        assert len(times) > 1
        assert item["today_ms"] == times[item["today"]]
        assert item["latency_ms"] == min(times.values())


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps run in this process, so that tests can replace what they call."""

    def called(_tuning: ModelTuning, step: TuneStep) -> int:
        printed = io.StringIO()
        with redirect_stdout(printed):
            code = run(list(step.args))
        if step.keeps is not None:
            step.keeps.write_text(printed.getvalue(), encoding="utf-8")
        return code

    monkeypatch.setattr(ModelTuning, "called", called)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process", "known_host")
@pytest.mark.parametrize(("compile_s", "is_measured"), [(20.0, True), (100.0, False)])
def test_a_minute_gives_a_table(
    compile_s: float,
    is_measured: bool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a slow compiler the first kernels are measured, or none: all shapes are listed, the rest as predicted.

    The export has a kernel for each, and the same command continues until nothing is left.
    """
    shapes, out, clock_s = tmp_path / "shapes.csv", tmp_path / "tuned", [0.0]
    sizes = ((1, 64, 96), (1, 32, 64), (1, 16, 256))
    rows = [f"gemm_universal,{count},layer{n},fp32,rcr,{m},{n},64,1" for count, m, n in sizes]
    shapes.write_text("\n".join([SHAPES.partition("\n")[0], *rows]), encoding="utf-8")
    real_s, build = time.monotonic, KernelBuilder.build
    monkeypatch.setattr(steps, "PLAN", ("--kernels", "sample:2"))

    def slow(
        self: KernelBuilder, kernels: Sequence[Any], jobs: int, advance: Any, should_stop: Any
    ) -> dict[Any, Built]:
        built: dict[Any, Built] = {}
        for kernel in kernels:
            if not should_stop():
                clock_s[0] += compile_s * len(self.missing([kernel]))
                built |= build(self, [kernel], jobs, advance)
        return built

    monkeypatch.setattr(time, "monotonic", lambda: real_s() + clock_s[0])
    monkeypatch.setattr(KernelBuilder, "build", slow)
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    line = ["tune", str(shapes), "--device", "host", "--budget", "1m", "--to", "amd-registry", "--out", str(out)]
    assert run([*line, "--json"]) == ExitCode.OK
    document = json.loads(capfd.readouterr().out)
    require_described("tune", document)
    count = sum(item["kernel"] is not None for item in document["shapes"])
    assert count > 0 if is_measured else count == 0
    assert all(item["kernel"] or item["predicted_kernel"] for item in document["shapes"])
    assert not document["is_complete"]
    assert document["pairs"] < document["pairs_planned"]
    names = json.loads(next((out / "export").glob("*.json")).read_text(encoding="utf-8"))
    assert {item["kernel"] or item["predicted_kernel"] for item in document["shapes"]} == {
        item["name"] for item in json.loads((out / "kernels.json").read_text(encoding="utf-8"))["kernels"]
    }
    assert names
    summary = (out / "summary.md").read_text(encoding="utf-8")
    expect_values(summary, document["pairs"], document["pairs_planned"])
    assert summary.count("| predicted, unmeasured |") == 3 - count
    compile_s, line[line.index("1m")] = 0.0, "10m"
    assert run([*line, "--json"]) == ExitCode.OK
    printed = capfd.readouterr()
    assert "ckh bench --resume" in printed.err
    document = json.loads(printed.out)
    assert (document["is_complete"], document["pairs"]) == (True, document["pairs_planned"])
    assert all(item["kernel"] for item in document["shapes"])
    assert run(line) == ExitCode.OK
    assert "$ ckh" not in capfd.readouterr().err


def test_a_folder_in_use_is_refused(shapes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By tune itself, before any step and even with --force; afterwards it can be used."""
    out = tmp_path / "tuned"
    line = ["tune", str(shapes), "--device", "host", "--out", str(out), "--force"]
    other = ModelTuning(settings_of([str(shapes)], TuneOptions(device="host")), out, force=False, is_quiet=True)
    before = (out / "tune.json").read_bytes()
    assert run(line) == ExitCode.USAGE
    expect_error(capfd.readouterr().err, "in-use", out)
    assert (out / "tune.json").read_bytes() == before
    del other
    ModelTuning(settings_of([str(shapes)], TuneOptions(device="host")), out, force=False, is_quiet=True)


@pytest.mark.slow
def test_a_dry_run_prints_the_steps(shapes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """For an operation that ckh does not measure, as that of AITER's tables, without a measuring plan."""
    out = tmp_path / "tuned"
    call = ["tune", "llama3-8b", "--to", "aiter", "--arch", "gfx942", "--dry-run", "--out", str(out)]
    assert run(call) == ExitCode.BAD_DATA  # a bf16 model has no scales
    assert [path.name for path in out.iterdir()] == ["tune.json"]
    capfd.readouterr()
    assert run([*call, "--dtype", "fp8", "--force"]) == 0
    printed = capfd.readouterr().out
    assert "$ ckh predict --op aiter_gemm" in printed
    assert "ckh bench" not in printed
    assert sorted(path.name for path in out.iterdir()) == ["shapes.csv", "shapes.json", "tune.json"]
    assert shapes.is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "dtype"),
    [
        ("gemm_fp16_rcr_m16_n4096_k4096_splitk1", "fp16"),
        ("gemm_multi_d_bf16_rcr_m4096_n1024_k4096_mul_r", "bf16"),
        ("gemm_batched_fp16_rcr_b64_m1024_n1024_k128_splitk1", "fp16"),
        ("gemm_streamk_bf16_rcr_m512_n512_k65536", "bf16"),
    ],
)
def test_a_problem_is_tuned_in_its_own_element_type(
    problem: str, dtype: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the architecture's default is."""
    assert run(["tune", problem, "--arch", "gfx942", "--dry-run", "--out", str(tmp_path / "tuned")]) == ExitCode.OK
    bench = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("$ ckh bench"))
    assert f"--arch gfx942 --dtype {dtype} " in bench


@pytest.mark.slow
def test_the_summary_names_what_was_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Page and JSON have the changed element type, and each part left out with its share and what takes it."""
    out = tmp_path / "tuned"
    call = ["tune", "deepseek-v3", "--tp", "8", "--tokens", "64", "--arch", "gfx942", "--to", "aiter", "--json"]
    assert run([*call, "--out", str(out)]) == ExitCode.OK
    document = json.loads(capfd.readouterr().out)
    listed = json.loads((out / "shapes.json").read_text(encoding="utf-8"))
    (experts,) = (line for line in document["left_out"] if "aiter_moe" in line)
    share = float(re.findall(r"([0-9.]+)%", experts)[0])
    assert run(["shapes", *call[1:6], "--json"]) == ExitCode.OK
    whole = json.loads(capfd.readouterr().out)["problems"]
    assert share == pytest.approx(100 * sum(e["share"] for e in whole if e["op"] == "aiter_moe"), abs=0.06)
    assert [f"left out {words}" for words in listed["left_out_work"]] == [
        line for line in document["left_out"] if line.startswith("left out")
    ]
    page = (out / "summary.md").read_text(encoding="utf-8")
    assert all(f"- {line}\n" in page for line in document["left_out"])


@pytest.mark.slow
def test_a_measured_operation_comes_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """DeepSeek-V3's GEMMs in bf16 are tuned, although most of its work is AITER's, which is noted with its share."""
    line = ["tune", "deepseek-v3", "--tp", "8", "--tokens", "64", "--arch", "gfx942", "--dry-run"]
    assert run([*line, "--out", str(tmp_path / "tuned")]) == ExitCode.OK
    printed = capfd.readouterr()
    assert "$ ckh bench --op gemm_universal" in printed.out
    assert run(["shapes", *line[1:6], "--json"]) == ExitCode.OK
    shares: dict[str, float] = {}
    for load in json.loads(capfd.readouterr().out)["problems"]:
        shares[load["op"]] = shares.get(load["op"], 0) + load["share"]
    assert shares.pop("gemm_universal") < 0.2
    for name, share in shares.items():
        assert f"{share:.1%}" in printed.err
        assert f"--op {name} takes them" in printed.err


@pytest.mark.slow
def test_a_dry_run_ends_with_the_error_of_a_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The CPU computes fp32 only: the bench that would be refused is, with its exit code."""
    line = ["tune", "gemm_fp16_rcr_m16_n64_k64_splitk1", "--device", "host", "--dtype", "fp16", "--dry-run"]
    assert run([*line, "--out", str(tmp_path / "tuned")]) == ExitCode.NO_KERNEL
    assert "$ ckh bench" not in capfd.readouterr().out


def test_a_killed_step_is_an_interruption(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the system when memory is short: exit code 130, the step and the signal, and nothing marked done."""
    monkeypatch.setattr(ModelTuning, "called", lambda _tuning, _step: -signal.SIGKILL)
    line = ["tune", "gemm_fp32_rcr_m16_n64_k64_splitk1", "--device", "host", "--out", str(tmp_path / "tuned")]
    assert run(line) == ExitCode.INTERRUPTED
    expect_values(capfd.readouterr().err, "shapes", signal.SIGKILL.value)
    assert json.loads((tmp_path / "tuned/tune.json").read_bytes())["done"] == []


@pytest.mark.parametrize("directions", [("forward",), ("bwd_data", "bwd_weight")])
def test_convolutions_of_some_directions(
    directions: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A list without problems of the other directions is measured."""
    texts = [f"conv_{direction}_fp32_nhwgc_2d_n1_c16_k16_g1_i5x6_f3x3_s1x1_p1x1_d1x1" for direction in directions]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    shapes = str(tmp_path / "shapes.csv")
    assert run(["shapes", str(tmp_path / "texts.txt"), "--out", shapes]) == ExitCode.OK
    line = ["bench", "--op", "grouped_conv", "--problems", shapes, "--variant", "all", "--device", "host"]
    capfd.readouterr()
    assert run([*line, "--out", str(tmp_path / "run"), "--dry-run", "--json"]) == ExitCode.OK
    assert json.loads(capfd.readouterr().out)["problems"] == len(texts)


@pytest.mark.slow
def test_times_of_the_consumers_own_tables(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A shape in AITER's table has its kernel and time there, labelled as measured by AITER; others have neither."""
    program = write_aiter(tmp_path / "aiter", {7: KERNEL}, table_row(16, KERNEL, 7, 12.5), "")
    texts = [f"aiter_gemm_a8w8_bpreshuffle_fp8_cu0_m{m}_n9216_k4096" for m in (16, 4096)]
    out = tmp_path / "tuned"
    line = ["tune", *texts, "--arch", "gfx950", "--to", "aiter", "--installed", str(program), "--out", str(out)]
    assert run([*line, "--json"]) == ExitCode.OK
    document = json.loads(capfd.readouterr().out)
    require_described("tune", document)
    first, second = document["shapes"]
    of_gpu = [text.replace("cu0", "cu256") for text in texts]
    assert (first["problem"], first["today"], first["table_ms"]) == (of_gpu[0], KERNEL, 0.0125)
    assert (second["problem"], second["table_ms"], first["today_ms"]) == (of_gpu[1], None, None)
    assert (second["today"], first["share"], second["share"]) == (None, 1.0, None)
    assert {parse_kernel(item["predicted_kernel"]).family for item in (first, second)} == {"a8w8_bpreshuffle"}
    assert run(line) == ExitCode.OK
    expect_values(capfd.readouterr().out, "today by AITER", "0.0125", "1 of 2")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--to", "aitre"], "unknown-name"),
        (["--budget", "soon"], "bad-number"),
        (["--op", "gemm_universl"], "unknown-op"),
        (["--to", "miopen"], "unknown-name"),
        (["--to", "aiter", "--op", "gemm_universal"], "unsupported"),
        (["--to", "aiter", "--device", "host"], "inapplicable-option"),
        (["--to", "inductor", "--device", "host"], "inapplicable-option"),
        (["--today", "nowhere.json"], "no-file"),
        (["--to", "aiter", "--arch", "gfx942", "--today", "shapes.csv"], "inapplicable-option"),
    ],
)
def test_wrong_options_create_no_folder(
    options: list[str], code: str, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused before any step."""
    out = tmp_path / "tuned"
    assert run(["tune", str(shapes), "--out", str(out), *options]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, code)
    assert not out.exists()


def test_a_target_without_enough_shapes(shapes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """C needs a model of six problems: two are refused before anything is measured."""
    out = tmp_path / "tuned"
    assert run(["tune", str(shapes), "--device", "host", "--to", "c", "--out", str(out)]) == ExitCode.USAGE
    expect_error(capfd.readouterr().err, "inapplicable-option", "c", 6, 2)
    assert not (out / "run").exists()


def test_no_source_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The options of ckh shapes that others need are named with what replaces them."""
    assert run(["tune", "--out", str(tmp_path / "tuned")]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "missing-option")
    assert run(["tune", "--torch", "pkg:factory", "--out", str(tmp_path / "tuned")]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "inapplicable-option", "--torch", "ckh shapes")


def test_a_source_is_never_an_option(tmp_path: Path) -> None:
    """The step that lists shapes has its sources after `--`, so that a file named like an option is read."""
    args = steps.listing(settings_of(["--torch=ev:f", "-x.json"], TuneOptions(device="host")), tmp_path).args
    assert args[args.index("--") + 1 :] == ("--torch=ev:f", "-x.json")
    assert not {"--torch=ev:f", "-x.json"} & set(args[: args.index("--")])


@pytest.mark.slow
def test_a_file_named_like_an_option_is_read(
    shapes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given after `--`, as a shell's pattern may expand to it."""
    monkeypatch.chdir(tmp_path)
    shapes.rename("--torch=ev:f")
    line = ["tune", "--out", "tuned", "--device", "host", "--dry-run"]
    assert run([*line, "--", "--torch=ev:f"]) == ExitCode.OK, capfd.readouterr().err
    assert (tmp_path / "tuned" / "shapes.csv").read_text(encoding="utf-8") == SHAPES


@pytest.mark.skipif(os.geteuid() != 0, reason="links of other users are root's to make")
def test_nothing_follows_a_planted_link(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder behind another user's link stays empty."""
    shared, mine = tmp_path / "tmp", tmp_path / "mine"
    shared.mkdir()
    shared.chmod(0o1777)
    mine.mkdir()
    link = shared / "t"
    link.symlink_to(mine)
    os.chown(link, 54321, 54321, follow_symlinks=False)
    line = ["tune", str(shapes), "--device", "host", "--dry-run", "--out", str(link)]
    for more in ([], ["--force"]):
        assert run([*line, *more]) == ExitCode.INPUT_OUTPUT
        expect_error(capsys.readouterr().err, "unsafe-output", link)
    assert list(mine.iterdir()) == []


def test_a_strange_tune_json_is_not_replaced(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of that name that ckh did not write stays, even with --force."""
    strange = tmp_path / "mine" / "tune.json"
    strange.parent.mkdir()
    strange.write_text('{"trials": 7}', encoding="utf-8")
    assert run(["tune", str(shapes), "--dry-run", "--out", str(strange.parent), "--force"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "foreign-output", strange)
    assert [path.name for path in strange.parent.iterdir()] == ["tune.json"]
    assert strange.read_text(encoding="utf-8") == '{"trials": 7}'


def test_a_foreign_folder_is_left_untouched(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Even with --force."""
    out = tmp_path / "mine"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert run(["tune", str(shapes), "--out", str(out), "--force"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "foreign-output", out)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
