"""`ckh shapes`, and its lists as the problems of other commands."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from ckh.shapes import sources
from tests.jsonschemas import require_described
from tests.refusals import expect_error, expect_values, expect_warning

FILES = Path(__file__).parents[1] / "shapes" / "files"
LLAMA = ["llama3-70b", "--tp", "8", "--tokens", "16"]


def document(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """The document of a call with --json, checked with its schema."""
    assert run([*args, "--json"]) == ExitCode.OK
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    require_described(result["schema"].removeprefix("ckh."), result)
    return result


def test_piped_output_is_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal the list is CSV with count, layers and the columns that identify a problem."""
    assert run(["shapes", *LLAMA]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["op,count,layers,dtype,layout,m,n,k,split_k", "gemm_universal,80,qkv,bf16,rcr,16,1280,8192,1"]
    assert len(lines) == 6


def test_document(capsys: pytest.CaptureFixture[str]) -> None:
    """The document has each problem's share of the operations; shares sum to one."""
    result = document(capsys, "shapes", *LLAMA)
    assert [item["layers"] for item in result["problems"]] == [["qkv"], ["o"], ["gate_up"], ["down"], ["lm_head"]]
    assert sum(item["share"] for item in result["problems"]) == pytest.approx(1)
    weights = 80 * (1280 * 8 + 1024 * 8 + 7168 * 8 + 3584 * 8) + 16032 * 8
    assert result["problems"][2]["share"] == pytest.approx(80 * 7168 * 8 / weights)


def test_weights_are_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights of a workload are a line on stderr, a field, and counts of the list, which other commands read."""
    out = tmp_path / "shapes.csv"
    call = ["shapes", "llama3-70b", "--tp", "8", "--workload", "mixed"]
    assert run([*call, "--out", str(out)]) == ExitCode.OK
    expect_values(capsys.readouterr().err, "1:1000", "256:1000", "8192:1")
    first = document(capsys, *call)
    assert first["weights"] == {**dict.fromkeys(["1", "4", "16", "64", "256"], 1000), "512": 1, "2048": 1, "8192": 1}
    assert document(capsys, "shapes", str(out))["problems"] == first["problems"]
    shares = [item["share"] for item in first["problems"]]
    assert shares == sorted(shares, reverse=True)
    assert run(["shapes", "llama3-70b", "--tokens", "1,64"]) == ExitCode.OK
    expect_values(capsys.readouterr().err, "1, 64", "once each", "--workload")


def test_a_written_list_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list with GEMMs, AITER's GEMMs and experts gives the same problems, counts and layers."""
    out = tmp_path / "shapes.csv"
    assert run(["shapes", "deepseek-v3", "--tp", "8", "--tokens", "1,64", "--out", str(out)]) == ExitCode.OK
    capsys.readouterr()
    first = document(capsys, "shapes", "deepseek-v3", "--tp", "8", "--tokens", "1,64")
    again = document(capsys, "shapes", str(out))
    assert again["problems"] == first["problems"]
    assert {item["op"] for item in first["problems"]} == {"gemm_universal", "aiter_gemm", "aiter_moe"}
    assert run(["shapes", "llama3-8b", "--out", str(out)]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "output-exists", out)
    assert run(["shapes", str(out), "--out", str(out), "--force"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "unsafe-output", out)


@pytest.mark.slow
def test_predict_reads_lists_and_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--problems` accepts the list, the ready model and a problem, and detects the operation."""
    out = tmp_path / "shapes.csv"
    listed = [item["problem"] for item in document(capsys, "shapes", *LLAMA, "--out", str(out))["problems"]]
    result = document(capsys, "predict", "--problems", str(out), "--arch", "gfx942", "--top", "1")
    assert [item["problem"] for item in result["results"]] == listed
    for text in (listed[0], "conv_forward_fp32_nhwgc_2d_n1_c16_k16_g1_i5x6_f3x3_s1x1_p1x1_d1x1"):
        result = document(capsys, "predict", "--problems", text, "--arch", "gfx942", "--top", "1")
        assert [item["problem"] for item in result["results"]] == [text]


def test_predict_reads_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """- is stdin, read once although the operation is detected from it first."""
    assert run(["shapes", *LLAMA]) == ExitCode.OK
    text = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    sources._kept.cache_clear()
    result = document(capsys, "predict", "--problems", "-", "--arch", "gfx942", "--top", "1")
    sources._kept("-").close()
    sources._kept.cache_clear()
    assert len(result["results"]) == 5


def test_pipes_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A named pipe is a source, like <(zcat server.log.gz); devices and longer pipes are refused."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        pipe.write_bytes((FILES / "blas.log").read_bytes())

    writer = threading.Thread(target=write)
    writer.start()
    assert len(document(capsys, "shapes", str(pipe))["problems"]) == 4
    writer.join()
    sources._kept(str(pipe)).close()
    sources._kept.cache_clear()
    assert run(["shapes", "/dev/zero"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "unreadable", "/dev/zero")
    monkeypatch.setattr(sources, "MAX_PIPED_BYTES", 100)
    writer = threading.Thread(target=write)
    writer.start()
    assert run(["shapes", str(pipe)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "too-large", pipe)
    writer.join()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (gzip.compress(b"hipblaslt-bench" * 100, mtime=0), "unknown-format"),
        (b"\0\1\2 binary", "unknown-format"),
        (b'{"a": 1}\n{"b": 2}\n', "no-problems"),
        (b"{", "bad-json"),
    ],
    ids=("gzip", "binary", "lines", "half"),
)
def test_unsupported_formats(content: bytes, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Packed and binary files, JSON logs without shapes and truncated JSON documents are refused."""
    path = tmp_path / "some.log"
    path.write_bytes(content)
    assert run(["shapes", str(path)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, code, path)


def test_bench_reads_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan on the host uses a log's shapes of the operation with the most work, in the device's element type."""
    log = tmp_path / "gemms.log"
    line = "hipblaslt-bench -m {m} -n 8 -k 64 --transA T --transB N --a_type f32_r --b_type f32_r\n"
    log.write_text("".join(line.format(m=m) for m in (16, 32, 16)), encoding="utf-8")
    out = tmp_path / "run"
    options = ["--device", "host", "--kernels", "sample:2", "--dry-run", "--out", str(out)]
    result = document(capsys, "bench", "--problems", str(log), *options)
    assert result["problems"] == 2
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "first"), [("gfx942", "m1_n8192_k8192"), ("host", "m2048_n512_k512")])
def test_plans_begin_with_the_most_time(
    arch: str, first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two shapes one moves 134 MB, in 25 us on an MI300X; the other has 8 times its operations, which take 1 us."""
    device = ["--device", "host"] if arch == "host" else ["--device", "hip", "--arch", arch]
    dtype = "fp32" if arch == "host" else "bf16"
    rows = "".join(f"gemm_universal,1,,{dtype},rcr,{m},{n},{k},1\n" for m, n, k in ((2048, 512, 512), (1, 8192, 8192)))
    path = tmp_path / "shapes.csv"
    path.write_text("op,count,layers,dtype,layout,m,n,k,split_k\n" + rows, encoding="utf-8")
    options = ["--plan", "1", "--dtype", dtype, "--dry-run", "--out", str(tmp_path / "run"), *device]
    result = document(capsys, "bench", "--problems", str(path), *options)
    assert [item["problem"] for item in result["plan"]] == [f"gemm_{dtype}_rcr_{first}_splitk1"]


def test_export_reads_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables for AITER are written for a model's quantised GEMMs, and not for those of a bf16 model."""
    out = tmp_path / "tables"
    call = ["export", "--to", "aiter", "--op", "aiter_gemm", "--problems", "llama3-8b", "--arch", "gfx942"]
    assert run([*call, "--out", str(out)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "unquantised", "bf16", "--dtype fp8")
    assert not out.exists()
    assert run([*call, "--dtype", "fp8", "--out", str(out)]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "left-out", "bf16")
    rows = (file.read_text(encoding="utf-8").splitlines() for file in out.rglob("*.csv"))
    assert sum(len(lines) - 1 for lines in rows) == 4 * 6


@pytest.mark.usefixtures("known_host")
def test_golden_choices_from_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Golden choices are created for a log's convolutions."""
    golden = tmp_path / "golden.json"
    log = str(FILES / "miopen.log")
    call = ["validate", "selection", str(golden), "--create", "--problems", log, "--dtype", "fp32", "--arch", "host"]
    assert run(call) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "left-out", "bf16")
    assert json.loads(golden.read_text(encoding="utf-8"))["op"] == "grouped_conv"


def test_ready_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a source it shows models and networks with the options that their shapes depend on."""
    result = {item["name"]: item["options"] for item in document(capsys, "shapes")["ready"]}
    assert result["llama3-70b"] == ["--tp", "--tokens"]
    assert result["resnet50"] == ["--batch"]
    assert result["vit-b16"] == ["--tp", "--batch"]
    assert run(["shapes"]) == ExitCode.OK


def test_a_table_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """At a terminal a table shows each problem's share."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["shapes", *LLAMA]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["problem", "layers", "count", "work"]
    assert lines[4].split()[1:] == ["gate_up", "80", "54.1", "%"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["no-such-model"], "no-file"),
        (["llama3-70b", "--tp", "3"], "indivisible"),
        (["llama3-70b", "--tokens", "0"], "out-of-range"),
        (["llama3-70b", "--tokens", "1,x"], "bad-number"),
        (["llama3-70b", "--tokens", "1:0"], "out-of-range"),
        (["llama3-70b", "--tokens", "1", "--workload", "mixed"], "conflicting-options"),
        (["llama3-70b", "--tokens", str(2**40)], "out-of-range"),
        (["llama3-70b", "--op", "nothing"], "unknown-op"),
        (["llama3-70b", "--table", str(FILES / "results.stats.csv")], "missing-column"),
        (["--torch", "nonsense"], "bad-name"),
    ],
)
def test_wrong_usage(args: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error is one line with a code, and never exit code 1."""
    assert run(["shapes", *args]) in (ExitCode.USAGE, ExitCode.BAD_DATA)
    expect_error(capsys.readouterr().err, code)


def test_bad_rows_of_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other rows of a list with a bad one are kept; with --strict it is named."""
    path = tmp_path / "shapes.csv"
    good = "op,count,layers,dtype,layout,m,n,k,split_k\ngemm_universal,2,a b,bf16,rcr,1,2,3,1\n"
    for row, code in (
        ("gemm_universal,0,,bf16,rcr,1,2,3,1", "out-of-range"),
        ("gemm_universal,1,,bf16,rcr,0,2,3,1", "out-of-range"),
        (f"gemm_universal,1,,bf16,rcr,{2**40},2,3,1", "out-of-range"),
        ("gemm_universal,1,,bf16,rcr,,2,3,1", "missing-field"),
        ("gemm_universal,1,,bf16,rcr,x,2,3,1", "bad-number"),
        ("nothing,1,,bf16,rcr,1,2,3,1", "unknown-op"),
        ("gemm_universal,1", "missing-field"),
        ("gemm_universal,1,,bf16,rcr,1,2,3,1,4", "bad-row"),
    ):
        path.write_text(good + row + "\n", encoding="utf-8")
        assert run(["shapes", str(path), "--strict"]) == ExitCode.BAD_DATA
        expect_error(capsys.readouterr().err, code, f"{path}:3")
        result = document(capsys, "shapes", str(path))
        assert [(item["count"], item["layers"]) for item in result["problems"]] == [(2, ["a", "b"])]
        assert sum(result["bad"].values()) == 1


def test_an_operation_without_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    """If a source has no problem of a command's operation, the error lists those that it has."""
    assert run(["predict", "--op", "grouped_conv", "--problems", "llama3-8b"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-problems", "grouped_conv", "llama3-8b", "gemm_universal")


@pytest.mark.parametrize(
    ("letters", "row", "column"), [("TN", "crr", "rcr"), ("nt", "rcr", "crr"), ("NN", "rrr", "rrr")]
)
def test_letters_of_a_layout_say_their_convention(
    letters: str, row: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Row-major letters become one layout, the same ones of hipBLASLt another, with m and n swapped."""
    call = ["predict", "--m", "16", "--n", "32", "--k", "64", "--arch", "gfx942", "--layout", letters, "--top", "1"]
    assert run(call) == ExitCode.OK
    printed = capsys.readouterr()
    expect_values(printed.err, letters.upper(), "row-major", row, "column-major", column, "swapped")
    assert f"layout {row}," in printed.out
    assert run([*call[:-3], row, "--top", "1"]) == ExitCode.OK
    assert "row-major" not in capsys.readouterr().err


def test_layouts_of_a_log_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of BLAS and of MIOpen, whose convolutions in NCHW are channels-last for CK's kernels."""
    log = tmp_path / "server.log"
    log.write_text(
        "hipblaslt-bench -m 64 -n 32 -k 16 --transA T --transB N --a_type bf16_r --b_type bf16_r\n"
        "./bin/MIOpenDriver convbfp16 -n 1 -c 8 -H 4 -W 4 -k 8 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -F 1\n",
        encoding="utf-8",
    )
    assert run(["shapes", str(log)]) == ExitCode.OK
    printed = capsys.readouterr()
    expect_values(printed.err, "column-major", "TN", "rcr", "nchw", "nhwgc", 1)
    assert "bf16,rcr,32,64,16" in printed.out


def test_aiters_rows_show_no_time_that_nobody_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table keeps its upper bound; the terminal says that it is a prediction, and which type fp8 is."""
    out, table = tmp_path / "out", tmp_path / "a8w8_untuned_gemm.csv"
    table.write_text("M,N,K\n16,7168,2048\n", encoding="utf-8")
    assert run(["export", "--to", "aiter", "--problems", str(table), "--arch", "gfx942", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    row = json.loads((out / "export.json").read_text(encoding="utf-8"))["choices"][0]
    assert row["us"] > 3000
    assert "predicted, unmeasured" in printed.out
    assert str(int(row["us"])) not in printed.out
    expect_values(printed.err, "fp8", "float8_e4m3fnuz", "gfx942")


@pytest.mark.parametrize(
    ("image", "code"), [("20x", "bad-number"), ("20,30", "bad-number"), ("0x30", "out-of-range"), ("20", None)]
)
def test_sizes_of_images(tmp_path: Path, image: str, code: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """--image sets what a model leaves open in its images, and must state as many sizes."""
    onnx = pytest.importorskip("onnx", reason="the package onnx is absent: pip install onnx")
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    inputs = [
        make.make_tensor_value_info("x", kind, [1, 3, "h", "w"]),
        make.make_tensor_value_info("f", kind, [8, 3, 3, 3]),
    ]
    outputs = [make.make_tensor_value_info("y", kind, None)]
    graph = make.make_graph([make.make_node("Conv", ["x", "f"], ["y"])], "graph", inputs, outputs)
    onnx.save(make.make_model(graph), str(tmp_path / "model.onnx"))
    (entry,) = document(capsys, "shapes", str(tmp_path / "model.onnx"), "--image", "20x30")["problems"]
    assert "_i20x30_" in entry["problem"]
    assert run(["shapes", str(tmp_path / "model.onnx"), "--image", image]) != ExitCode.OK
    expect_error(capsys.readouterr().err, code or "missing-field", "--image")
