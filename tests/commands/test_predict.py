"""`ckh predict` on the command line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.planning.plan import full_name
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.models.artifact import load_model
from ckh.ops.grouped_conv.features import NAMES_83
from ckh.ops.grouped_conv.kernel import kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem, parse_conv_problem
from ckh.problems import Direction
from tests.learn.conftest import HOST, amd_model, kernels, saved
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.learn.answers.ranked import Ranked

POOL = conv_pool(Direction.FORWARD, HOST)
HEAVY = ("lightgbm", "pandas", "sklearn", "pyarrow", "scipy", "joblib")


@pytest.fixture(autouse=True)
def nothing_else(host_asked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test's models: not the user's, not the shipped ones."""
    (tmp_path / "models").mkdir()
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setattr("ckh.files.paths.data_dir", lambda name: tmp_path / "shipped" / name)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model in the search path."""
    (tmp_path / "models").mkdir(exist_ok=True)
    return saved(tmp_path / "models" / "mine")


def rows(model: Path, **sizes: Any) -> list[list[Ranked[Any]]]:
    """The model's ranking of the whole pool, measured kernels first: a list for each score."""
    defaults: dict[str, Any] = {"n": 1, "c": 64, "k": 64, "g": 1, "hi": 28, "wi": 28, "y": 3, "x": 3}
    problem = ConvProblem(Direction.FORWARD, **(defaults | {"pad_h": 1, "pad_w": 1} | sizes))
    pool, measured = conv_pool(Direction.FORWARD, HOST, problem.ndim), set(kernels())
    in_order = sorted(pool, key=lambda kernel: kernel not in measured)
    result = load_model(model).rank(problem, in_order)
    return [list(alike) for _, alike in groupby(result, lambda item: item.score)]


def ranked(model: Path, **sizes: Any) -> list[Ranked[Any]]:
    """The first kernel of each score."""
    return [alike[0] for alike in rows(model, **sizes)]


def fails(capsys: pytest.CaptureFixture[str], code: ExitCode, *args: str) -> str:
    """The lines on stderr of a call that fails with nothing on stdout."""
    assert run(["predict", *args]) == code
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert stderr.startswith("error: ")
    assert "Traceback" not in stderr
    assert len(stderr.splitlines()) <= 2
    return stderr


def test_the_table_has_the_best_kernels(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With only --model: the defaults, the device of the measurements, the counts with --why, and the best five."""
    assert run(["predict", "--model", str(model), "--why"]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    lines = stdout.splitlines()
    assert stderr == ""
    expect_values(lines[0], "forward fp32", "N=1 C=64 K=64", "28x28", "3x3", "padding 1x1")
    assert lines[1].strip() == "conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1"
    expect_values(lines[2], "model    mine", "a test")
    expect_values(lines[3], "kernels  300", 24, 0)
    expected = [
        [str(place), f"{candidate.tflops:.4g}", f"{candidate.latency_ms:.4g}", full_name(candidate.kernel)]
        for place, candidate in enumerate(ranked(model)[:5], 1)
    ]
    begin = next(number for number, line in enumerate(lines) if line.endswith("kernel")) + 1
    assert [line.split() for line in lines[begin : begin + 5]] == expected


def test_json_has_the_complete_kernels(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model is found automatically; all 300 kernels are listed once, with the model's predictions."""
    assert run(["predict", "--c", "128", "--n", "4", "--top", "999", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["model"], document["arch"], document["device"]) == (str(model), "host", "a test")
    assert (document["candidates"], document["refused"], document["sizes"]["k"]) == (300, {}, 128)
    assert document["kernels"] == [
        {
            "kernel": full_name(item.kernel),
            "score": item.score,
            "tflops": item.tflops,
            "latency_ms": item.latency_ms,
            "bandwidth_gb_s": None,
            "measured_latency_ms": None,
            "ties": 1 + len(others),
            "tied": [full_name(other.kernel) for other in others],
            "not_in_headers": None,
            "measured": item.kernel in kernels(),  # the 24 of the training data
        }
        for item, *others in rows(model, n=4, c=128, k=128)
    ]
    named = [name for item in document["kernels"] for name in (item["kernel"], *item["tied"])]
    assert sorted(named) == sorted(map(kernel_name, POOL))
    assert any(item["ties"] > 1 for item in document["kernels"])


def test_non_monotonic_speeds_are_explained(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If the predicted TFLOPS are not in the order of the ranking a line and a JSON field explain it."""
    speeds = [candidate.tflops or 0 for candidate in ranked(model)]
    assert speeds != sorted(speeds, reverse=True)
    fall = next(count for count in range(1, len(speeds)) if speeds[count] > speeds[count - 1]) + 1
    for top, in_order in ((fall, False), (fall - 1, True)):
        assert run(["predict", "--top", str(top)]) == ExitCode.OK
        assert ("ranking model" in capsys.readouterr().out) is not in_order
        assert run(["predict", "--top", str(top), "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["predictions_in_order"] is in_order


def test_a_table_of_many_problems_explains_its_speeds(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its footnotes are those of a single problem: speeds that do not fall, and problems without any."""
    path = tmp_path / "problems.csv"
    for channels, lines in (("64", (False, True)), ("8000000", (True, False))):
        path.write_text(f"N,C,K,Hi,Wi,Y,X\n1,{channels},8,14,14,1,1\n", encoding="utf-8")
        assert run(["predict", "--problems", str(path), "--top", "300"]) == ExitCode.OK
        out = capsys.readouterr().out
        is_said = ("\nno speed predicted: for 1 of 1 problems" in out, "ranking model" in out)
        assert is_said == lines


def test_no_speed_is_predicted_far_out_of_distribution(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels are ranked, but a size beyond 8 times the model's largest threshold has no time, with the reason."""
    largest = load_model(model).reach["c"]
    inside, outside = int(8 * largest), int(8 * largest) + 1
    for c, is_told in ((inside, True), (outside, False)):
        assert run(["predict", "--c", str(c), "--k", "8", "--json"]) == ExitCode.OK
        document = json.loads(capsys.readouterr().out)
        assert (document["beyond_training"] is None) is is_told
        assert all((item["tflops"] is not None) is is_told for item in document["kernels"])
        assert all((item["latency_ms"] is not None) is is_told for item in document["kernels"])
    why = document["beyond_training"]
    expect_values(why, f"c = {outside}", 8, f"{largest:.4g}")
    assert run(["predict", "--c", str(outside), "--k", "8", "--top", "1"]) == ExitCode.OK
    *before, unknown, reason, _ = capsys.readouterr().out.splitlines()
    assert not any("TFLOPS" in line or " ms" in line for line in before)
    assert f"c = {outside} is" in unknown
    expect_values(reason, why)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("", "2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1"),
        ("--c 96 --g 3 --hi 14", "2d_n1_c96_k96_g3_i14x14_f3x3_s1x1_p1x1_d1x1"),
        ("--k 32 --hi 14 --wi 20 --y 5 --x 1", "2d_n1_c64_k32_g1_i14x20_f5x1_s1x1_p2x0_d1x1"),
        ("--stride 2", "2d_n1_c64_k64_g1_i28x28_f3x3_s2x2_p1x1_d1x1"),
        ("--stride 2x1 --dilation 1x3 --y 5", "2d_n1_c64_k64_g1_i28x28_f5x5_s2x1_p2x6_d1x3"),
        ("--pad 0", "2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p0x0_d1x1"),
        ("--ndim 3", "3d_n1_c64_k64_g1_i8x28x28_f3x3x3_s1x1x1_p1x1x1_d1x1x1"),
        ("--di 16 --y 1", "3d_n1_c64_k64_g1_i16x28x28_f1x1x1_s1x1x1_p0x0x0_d1x1x1"),
        ("--z 1 --stride 1x2x2", "3d_n1_c64_k64_g1_i8x28x28_f1x3x3_s1x2x2_p0x1x1_d1x1x1"),
    ],
)
def test_omitted_options_have_defaults(
    model: Path, args: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """K is C, width is height, padding keeps the size, and a depth implies 3D."""
    assert run(["predict", *args.split(), "--json", "--top", "1"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    layout = "ndhwgc" if problem.startswith("3d") else "nhwgc"
    assert document["problem"] == f"conv_forward_fp32_{layout}_{problem}"
    sizes = parse_conv_problem(document["problem"]).to_dict()
    assert document["sizes"] == sizes
    assert len(document["kernels"]) == 1


def test_many_problems_have_one_ranking_each(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of problems gives what each alone gives, in its order; at 80 columns below each problem's text."""
    texts = [
        "conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1",
        "conv_forward_fp32_ndhwgc_3d_n2_c8_k8_g1_i4x9x9_f3x3x3_s1x1x1_p1x1x1_d1x1x1",
    ]
    path = tmp_path / "layers.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert run(["predict", "--problems", str(path), "--json", "--top", "2"]) == ExitCode.OK
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["problem"] for result in results] == texts
    assert results[0]["kernels"][1]["tflops"] == ranked(model)[1].tflops
    assert run(["predict", "--problems", str(path), "--top", "2"]) == ExitCode.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:6]]
    assert [row[0] for row in rows] == [texts[0], texts[0], texts[1], texts[1]]
    assert rows[1][-1] == ranked(model)[1].name
    monkeypatch.setattr("ckh.text.prose._COLUMNS", 80)
    assert run(["predict", "--problems", str(path), "--top", "2"]) == ExitCode.OK
    table = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(table) if line.startswith("-")) + 1
    lines = table[begin : table.index("", begin)]
    words = [line.split() for line in lines]
    assert [own[0] for own in words if own[0] in (*texts, "1", "2")] == [texts[0], "1", "2", texts[1], "1", "2"]
    speeds = [f"{row['tflops']:.4g}" for result in results for row in result["kernels"][:2]]
    assert [own[1] for own in words if own[0] in ("1", "2")] == speeds  # rows that differ by a flag alone, too
    best: Any = ranked(model)[0].kernel
    assert {f"{best.tile_m}x{best.tile_n}x{best.tile_k}", best.pipeline} <= {*lines[1].split()}
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("args", "code", "values"),
    [
        ("--c 0", "out-of-range", ["C ", "1", "0"]),
        ("--n -3", "out-of-range", ["N ", "1", "-3"]),
        ("--hi 99999999999", "out-of-range", ["Hi", "2^31", "99999999999"]),
        ("--c 64 --g 3", "indivisible", ["C=64", "G=3"]),
        ("--k 10 --g 4", "indivisible", ["K=10", "G=4"]),
        ("--hi 4 --y 7 --pad 0", "impossible-problem", ["1x7x7"]),
        ("--stride 0", "out-of-range", ["stride_h", "1"]),
        ("--stride fast", "bad-number", ["--stride 'fast'", "2"]),
        ("--stride 1x2x3", "bad-number", ["--stride '1x2x3'", "2"]),
        ("--stride -1", "bad-number", ["--stride '-1'"]),
        ("--pad 1x", "bad-number", ["--pad '1x'"]),
        ("--ndim 3 --dilation 1x2", "bad-number", ["--dilation '1x2'", "3"]),
        ("--ndim 2 --di 8", "inapplicable-option", ["2D", "--di", "--z"]),
        ("--dtype fp31", "unknown-dtype", ["'fp31'"]),
        ("--arch gfx000", "unknown-arch", ["'gfx000'"]),
        ("--arch=", "unknown-arch", ["''"]),
        ("--problems nowhere.csv", "unreadable", ["nowhere.csv"]),
        ("--problems resnet50 --c 64", "conflicting-options", ["--c", "--problems"]),
    ],
)
def test_invalid_input_is_refused(
    model: Path, args: str, code: str, values: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line, with the exit code of wrong usage."""
    exit_code = ExitCode.BAD_DATA if "nowhere" in args else ExitCode.USAGE
    expect_error(fails(capsys, exit_code, *args.split()), code, *values)


@pytest.mark.parametrize("args", ["--c many", "--ndim 4", "--top 0", "--variant sideways", "--c 1.5"])
def test_option_values_of_the_wrong_type(model: Path, args: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid value of an option is wrong usage, too."""
    assert run(["predict", *args.split()]) == ExitCode.USAGE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert args.split(maxsplit=1)[0] in stderr


def test_no_matching_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The existing models are named; those of another architecture are not used if measurements are required."""
    amd_model(tmp_path / "models" / "bwd_data", NAMES_83)
    there = "grouped_conv bwd_data bf16 on gfx950, grouped_conv forward fp32 on host"
    wanted = "grouped_conv bwd_weight fp32 on host"
    args = ["--variant", "bwd_weight", "--require", "measured"]
    expect_error(fails(capsys, ExitCode.BAD_DATA, *args), "no-model", wanted, there)
    error = fails(capsys, ExitCode.BAD_DATA, "--arch", "gfx942", "--require", "measured")
    expect_error(error, "no-model", there)


def test_other_matching_models_are_named(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are below the model with --why, and in JSON; a model named with --model has no others."""
    shipped = saved(tmp_path / "shipped" / "models" / "zwei")
    assert run(["predict", "--why"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == f"         preferred over {shipped}"
    assert run(["predict", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["model"], document["other_models"]) == (str(model), [str(shipped)])
    assert run(["predict", "--json", "--model", str(model)]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["other_models"] == []


def test_a_model_for_something_else_is_not_used(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--model must be for the requested direction and architecture."""
    named = ("--model", str(model))
    error = fails(capsys, ExitCode.USAGE, *named, "--variant", "bwd_data")
    expect_error(error, "model-mismatch", "forward fp32 on host", "bwd_data fp32 on host")
    error = fails(capsys, ExitCode.USAGE, *named, "--arch", "gfx942")
    expect_error(error, "model-mismatch", "on host", "forward fp32 on gfx942")


def test_no_kernel_applies(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dtype without kernels has its own exit code."""
    path = model / "feature_spec.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"fp32"', '"fp16"'), encoding="utf-8")
    message = fails(capsys, ExitCode.NO_KERNEL, "--model", str(model))
    expect_error(message, "no-kernel", "host", "conv_forward_fp16_", 300, 300, "fp16")


@pytest.mark.parametrize("name", ["feature_spec.json", "model_rank.lgbm.gz", "model_tflops.lgbm.gz"])
def test_a_damaged_model_is_named(model: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A truncated file is an error that names it."""
    path = model / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert name in fails(capsys, ExitCode.BAD_DATA, "--model", str(model))


def test_a_missing_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the missing folder."""
    folder = tmp_path / "none"
    expect_error(fails(capsys, ExitCode.BAD_DATA, "--model", str(folder)), "no-model", folder)


def test_predict_imports_only_numpy(model: Path) -> None:
    """In a separate process, no heavy library is loaded for a prediction."""
    code = f"""
import sys
from ckh.cli import run
assert run(["predict", "--model", {str(model)!r}, "--json"]) == 0
assert "numpy" in sys.modules
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["candidates"] == 300
    assert done.stderr == "[]\n"


def test_some_of_many_problems_have_no_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those without a kernel are named with the reason; the code is 0 if others have one, else 5."""
    amd_model(tmp_path / "forward", NAMES_83)
    good = "conv_forward_bf16_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1"
    bad, path = good.replace("c64", "c4"), tmp_path / "layers.txt"
    path.write_text(good + "\n" + bad + "\n", encoding="utf-8")
    args = ["predict", "--model", str(tmp_path / "forward"), "--problems", str(path), "--top", "1"]
    assert run([*args, "--no-pad-channels", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [item["problem"] for item in document["results"]] == [good]
    (failure,) = document["failures"]
    assert failure["problem"] == bad
    expect_values(failure["reason"], "C/G = 4", "vector_b = 8")
    assert run([*args, "--no-pad-channels"]) == ExitCode.OK
    expect_values(capsys.readouterr().out, "1 of 2")
    assert run([*args, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [item["padded"] for item in document["results"]] == [None, {"c": 8}]
    assert document["failures"] == []
    path.write_text(bad + "\n", encoding="utf-8")
    assert run([*args, "--no-pad-channels"]) == ExitCode.NO_KERNEL


@pytest.mark.parametrize(("channels", "times"), [("3", "2.67 times"), ("60", "")])
def test_the_work_that_padding_adds(
    channels: str, times: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model's measured kernels run 3 channels as 8, 2.67 times the work; that of 4 more to 60 is not said."""
    amd_model(tmp_path / "forward", NAMES_83)
    args = ["predict", "--model", str(tmp_path / "forward"), "--c", channels, "--k", "64", "--json"]
    assert run(args) == ExitCode.OK
    (message,) = (
        item["message"] for item in json.loads(capsys.readouterr().out)["caveats"] if item["kind"] == "padded"
    )
    assert times in message
    assert bool(times) == ("times the work" in message)


@pytest.mark.parametrize(("arch", "variant"), [("gfx942", "forward"), ("gfx950", "bwd_data"), ("gfx942", "bwd_weight")])
def test_depthwise_convolutions_are_not_padded(arch: str, variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """192 channels in as many groups run as they are, with vectors of one element; padded 64 times if asked to."""
    args = ["predict", "--c", "192", "--g", "192", "--hi", "56", "--arch", arch, "--dtype", "fp16"]
    args += ["--variant", variant, "--top", "99", "--json"]
    assert run(args) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["padded"] is None
    kernels = [parse_kernel_name(row["kernel"]) for row in document["kernels"]]
    narrow = [kernel for kernel in kernels if kernel.vectors == (1, 1, 1) and kernel.num_groups_to_merge == 1]
    assert narrow
    assert all(kernel.num_groups_to_merge > 1 for kernel in {*kernels} - {*narrow})
    assert document["not_measured"]["basis"] == "estimate"
    assert run([*args, "--pad-channels"]) == ExitCode.OK
    padded = capsys.readouterr()
    assert "_c1536_k1536_g192_" in json.loads(padded.out)["problem"]
    assert "64 times" in padded.err


def test_models_of_times_and_bandwidths_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AMD's folder with three models has the ms and GB/s of two of them, as predicted by LightGBM."""
    folder = tmp_path / "forward"
    booster = amd_model(folder, NAMES_83, targets=["tflops", "latency", "bandwidth"], log_targets=["tflops"])
    for target in ("latency", "bandwidth"):
        (folder / f"model_{target}.lgbm").write_text(booster.model_to_string(), encoding="utf-8")
    args = ["predict", "--model", str(folder), "--dtype", "bf16", "--c", "64"]
    for _ in range(2):
        assert run([*args, "--json"]) == ExitCode.OK
        kernels = json.loads(capsys.readouterr().out)["kernels"]
        expected = pytest.approx([math.log1p(kernel["tflops"]) for kernel in kernels], rel=1e-9)
        assert [kernel["latency_ms"] for kernel in kernels] == expected
        assert [kernel["bandwidth_gb_s"] for kernel in kernels] == expected
    assert run(args) == ExitCode.OK
    assert "GB/s" in capsys.readouterr().out
