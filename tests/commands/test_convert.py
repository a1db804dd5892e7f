"""`ckh convert` on the command line."""

from __future__ import annotations

import json
import os
from csv import DictReader
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.journal import JournalWriter, ResultRow
from ckh.data.readers import readers
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from ckh.schema import HARDWARE, Status
from tests.refusals import expect_error, expect_values
from tests.runs import host_run

ROOT = Path(__file__).parents[2]
KERNELS = [f"grouped_conv_forward_bf16_2d_64x32x16_{how}" for how in ("mem_intrawave", "mem_interwave", "compv3")]
FULL = "grouped_conv_fwd_bf16_nhwgc_2d_{}_cshuffle_intrawave_64x32x16_{}_16x16x16"
PROBLEM = "conv_forward_bf16_nhwgc_2d_n2_c64_k128_g2_i28x28_f3x3_s1x1_p1x1_d1x1"
SIZES = "2,64,128,2,1,28,28,1,3,3,1,{stride},1,0,1,1,1,1,1"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    """A file of AMD's benchmark: two problems, three kernels, one of which wrote zeros."""
    lines = [",".join(AMD_COLUMNS)]
    for i, stride in enumerate((1, 2)):
        flops = 2 * 2 * 128 * 32 * 28 * (28 // stride) * 9
        for j, kernel in enumerate(KERNELS):
            ms = 0.125 * (1 + i + j)
            sizes = SIZES.format(stride=stride)
            lines.append(f"{kernel},{i},{sizes},{ms},{flops / ms / 1e9},{int((i, j) != (1, 2))}")
    path = tmp_path / "amd.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def journal(folder: Path, *rows: ResultRow, run_id: str = "run1") -> Path:
    """A run of ckh bench."""
    record = host_run(dict.fromkeys(HARDWARE, 4), run_id=run_id, device_kind="hip", arch="gfx942", device="GPU")
    writer = JournalWriter(folder)
    writer.start_run(record)
    writer.add(*rows)
    writer.close()
    return folder


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON document on stdout."""
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def test_a_csv_is_converted_to_a_dataset(csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The summary counts rows, statuses, problems and kernels, and the file contains them."""
    out = csv.with_name("data.parquet")
    assert run(["convert", str(csv), "--arch", "gfx942", "--out", str(out), "--json"]) == ExitCode.OK
    summary = document(capsys)
    expected = {"rows": 6, "valid": 5, "problems": 2, "kernels": 3, "by_status": {"ok": 5, "wrong_result": 1}}
    expected |= {"dropped": {}, "superseded": 0, "repeated": 0, "archs": ["gfx942"], "variants": ["forward"]}
    assert {name: summary[name] for name in expected} == expected
    assert summary["next"] == f"ckh train {out} --out models/data"
    dataset = read_dataset(out)
    assert dataset.content_hash == summary["sha256"]
    assert dataset.frame["latency_ms"].tolist() == [0.125, 0.25, 0.375, 0.25, 0.375, 0.5]


def test_the_table_names_the_next_command(csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json a table and the next command are printed."""
    out = csv.with_name(os.fsdecode(b"d\xe9 1.parquet"))
    assert run(["convert", str(csv), "--arch", "gfx942", "--out", str(out)]) == ExitCode.OK
    text = capsys.readouterr().out
    assert ["status", "wrong_result", "1"] in [line.split() for line in text.splitlines()]
    assert text.rstrip().endswith(f"next: ckh train $'{csv.parent}/d\\xe9\\x201.parquet' --out $'models/d\\xe9\\x201'")


def test_journals_and_csv_are_merged(csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs, journal files and CSV files become one dataset, and repeated pairs are counted."""
    kernels = [FULL.format("mem", waves) for waves in ("1x2x1", "2x1x1", "2x2x1")]
    weak = ResultRow("run1", PROBLEM, kernels[0], Status.OK, "", 1.0, 1.0, 0.0, (1e6,), 1)
    again = ResultRow("run1", PROBLEM, kernels[0], Status.OK, "", 2.0, 2.0, 0.0, (2e6,), 1)
    other = ResultRow("run1", PROBLEM, kernels[1], Status.CRASH, "signal 6")
    strong = ResultRow("run2", PROBLEM, kernels[0], Status.OK, "", 3.0, 3.0, 0.0, (3e6, 3e6), 1)
    item = journal(tmp_path / "one", weak, again, other)
    two = journal(tmp_path / "two", strong, run_id="run2") / "journal.jsonl"
    out = tmp_path / "data.parquet"
    args = ["convert", str(item), str(two), str(csv), "--arch", "gfx942", "--out", str(out), "--json"]
    assert run(args) == ExitCode.OK
    summary = document(capsys)
    assert (summary["rows"], summary["superseded"], summary["repeated"], summary["kernels"]) == (8, 1, 1, 5)
    dataset = read_dataset(out)
    assert dataset.frame["latency_ms"].max() == 3.0
    assert [record["run_id"] for record in dataset.metadata["runs"]] == ["run1", "run2"]
    assert [source["format"] for source in dataset.metadata["sources"]] == ["journal", "journal", "amd-csv"]


@pytest.mark.parametrize(
    ("content", "args", "code"),
    [
        ("", ["--arch", "gfx942"], ExitCode.BAD_DATA),
        ("hello\n", ["--arch", "gfx942"], ExitCode.BAD_DATA),
        (None, [], ExitCode.USAGE),
        (None, ["--arch", "gfx000"], ExitCode.USAGE),
        (None, ["--from", "xml"], ExitCode.USAGE),
        (None, ["--from", "journal"], ExitCode.BAD_DATA),
    ],
)
def test_errors_leave_the_old_output(csv: Path, content: str | None, args: list[str], code: ExitCode) -> None:
    """After any error, an existing output that was to be replaced is unchanged."""
    out = csv.with_name("data.parquet")
    assert run(["convert", str(csv), "--arch", "gfx942", "--out", str(out)]) == ExitCode.OK
    before = out.read_bytes()
    if content is not None:
        csv.write_text(content, encoding="utf-8")
    assert run(["convert", str(csv), "--out", str(out), "--force", *args]) == code
    assert out.read_bytes() == before
    assert sorted(path.name for path in csv.parent.iterdir()) == ["amd.csv", "data.parquet"]


def test_an_unwritable_output_is_reported_before_reading(csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the output, although the input is bad too."""
    out = csv / "data.parquet"
    assert run(["convert", str(csv), "--arch", "nonsense", "--out", str(out)]) == ExitCode.INPUT_OUTPUT
    expect_error(capsys.readouterr().err, "unwritable", out)


@pytest.mark.parametrize(("to", "name"), [("parquet", "data.parquet"), ("csv", "out.csv")])
def test_only_force_replaces_files_of_the_same_kind(
    csv: Path, tmp_path: Path, to: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each format's file needs --force to be replaced by the same format; other content of that name is unchanged."""
    out = tmp_path / name
    args = ["convert", str(csv), "--arch", "gfx942", "--to", to, "--out", str(out)]
    assert run(args) == ExitCode.OK
    before = out.read_bytes()
    capsys.readouterr()
    assert run(args) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "output-exists", out, "--force")
    assert out.read_bytes() == before
    assert run([*args, "--force"]) == ExitCode.OK
    assert out.read_bytes() == before
    out.write_text("precious", encoding="utf-8")
    assert run([*args, "--force"]) == ExitCode.USAGE
    assert out.read_text(encoding="utf-8") == "precious"


def test_amd_csv_round_trip(csv: Path) -> None:
    """Written as AMD's 24 columns and read again, the rows are the same."""
    back, parquet, again = (csv.with_name(name) for name in ("back.csv", "data.parquet", "again.parquet"))
    arch = ["--arch", "gfx942"]
    assert run(["convert", str(csv), *arch, "--to", "csv", "--out", str(back)]) == ExitCode.OK
    assert tuple(back.read_text(encoding="utf-8").splitlines()[0].split(",")) == AMD_COLUMNS
    assert run(["convert", str(csv), *arch, "--out", str(parquet)]) == ExitCode.OK
    assert run(["convert", str(back), *arch, "--out", str(again)]) == ExitCode.OK
    left, right = (read_dataset(path).frame.drop(columns="run_id") for path in (parquet, again))
    pd.testing.assert_frame_equal(left, right)


def test_exported_kernels_are_never_aliased(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels with the same short name keep their complete names; failures are left out with a warning."""
    kernels = [FULL.format("mem", waves) for waves in ("1x2x1", "2x1x1")]
    rows = [ResultRow("run1", PROBLEM, kernel, Status.OK, "", 1.0, 1.0, 0.0, (1e6,), 1) for kernel in kernels]
    folder = journal(
        tmp_path / "run", *rows, ResultRow("run1", PROBLEM, FULL.format("compv3", "2x2x1"), Status.TIMEOUT)
    )
    out = tmp_path / "back.csv"
    assert run(["convert", str(folder), "--to", "csv", "--out", str(out)]) == ExitCode.OK
    assert [line.split(",")[0] for line in out.read_text(encoding="utf-8").splitlines()[1:]] == kernels
    err = capsys.readouterr().err
    assert [line.startswith("warning: ") for line in err.splitlines()].count(True) == 2
    assert run(["convert", str(out), "--arch", "gfx942", "--out", str(tmp_path / "data.parquet")]) == ExitCode.OK
    assert read_dataset(tmp_path / "data.parquet").frame["kernel"].tolist() == kernels


def test_formats_of_every_operation_are_accepted(csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` lists the values of `--from` and `--to`, readers in the order of detection; others are refused."""
    formats = ["journal", "amd-csv", "amd-parquet", "tile-engine-json", "bench-log"]
    formats += ["tile-engine-csv", "master-csv", "gemm-parquet", "aiter-csv", "aiter-moe-csv", "library-log"]
    assert list(readers()) == formats
    assert run(["convert", "--help"]) == ExitCode.OK
    text = "".join(capsys.readouterr().out.split())
    assert f"insteadofdetection:{','.join(formats)}." in text
    assert "[parquet|csv|aiter|aiter-moe]" in text
    for option, names in (
        ("--from", formats),
        ("--to", ["parquet", "csv", "aiter", "aiter-moe"]),
    ):
        args = ["convert", str(csv), "--arch", "gfx942", "--out", str(csv.with_name("x")), option, "xml"]
        assert run(args) == ExitCode.USAGE
        expect_error(capsys.readouterr().err, "unknown-name", "'xml'", ", ".join(names))
    assert not csv.with_name("x").exists()


def test_rows_of_another_operation_have_no_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AMD's columns are those of convolutions; nothing is written."""
    log = tmp_path / "gemm.log"
    name = "gemm_universal_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x64x32_2x2x1_32x32x16"
    result = {"name": name, "perf_result": {"latency(ms)": 0.5, "tflops(TFlops)": 0.001}}
    log.write_text("Shape 1: M=64 N=64 K=64 dtype=fp16 layout=rcr\n" + json.dumps(result), encoding="utf-8")
    out = tmp_path / "x.csv"
    assert run(["convert", str(log), "--arch", "gfx942", "--to", "csv", "--out", str(out)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "unsupported", "gemm_universal", "csv")
    assert not out.exists()


def test_a_tuned_table_without_known_kernels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AITER's table whose kernels ckh does not know is no dataset, but a source of shapes."""
    table = tmp_path / "tuned.csv"
    table.write_text(
        "gfx,cu_num,M,N,K,q_dtype_w,us,kernelName\n"
        "gfx950,256,16,1280,8192,torch.int8,8.0,k\n"
        "gfx942,304,16,1280,8192,torch.int8,4.0,k\n",
        encoding="utf-8",
    )
    assert run(["convert", str(table), "--out", str(tmp_path / "x.parquet")]) == ExitCode.BAD_DATA
    capsys.readouterr()
    out = tmp_path / "shapes.csv"
    assert run(["shapes", str(table), "--op", "gemm_universal", "--out", str(out)]) == ExitCode.OK
    rows = list(DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert [(row["count"], row["dtype"], row["m"], row["n"], row["k"]) for row in rows] == [
        ("2", "int8", "16", "1280", "8192")
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shapes.csv", "tuned.csv"]


@pytest.mark.parametrize(("to", "file"), [("inductor", "ckh_inductor.py"), ("ck-dispatcher", "MODEL.hpp")])
def test_an_exported_model_is_refused(to: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a model and no choices, and its files, are refused in one line with the reason."""
    model = ROOT / "models" / "grouped_conv_forward_bf16_gfx950"
    folder = tmp_path / "exported"
    args = ["--arch", "gfx950"] if to == "inductor" else []
    assert run(["export", "--to", to, "--model", str(model), "--out", str(folder), *args]) == ExitCode.OK
    for path in (folder, folder / file.replace("MODEL", model.name)):
        capsys.readouterr()
        assert run(["convert", str(path), "--out", str(tmp_path / "x.parquet")]) == ExitCode.BAD_DATA
        error, hint = capsys.readouterr().err.splitlines()
        expect_values(error, to, "[not-convertible]")
        assert "ckh predict --model" in hint
    assert not (tmp_path / "x.parquet").exists()


def test_a_folder_of_tables_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables of an export are named; one of them is read back, and trains no model."""
    shapes, out = tmp_path / "a8w8_blockscale_untuned_gemm.csv", tmp_path / "tables"
    shapes.write_text("M,N,K\n16,1536,7168\n")
    assert run(["export", "--to", "aiter", "--arch", "gfx942", "--problems", str(shapes), "--out", str(out)]) == 0
    capsys.readouterr()
    assert run(["convert", str(out), "--out", str(tmp_path / "x.parquet")]) == ExitCode.BAD_DATA
    table = out / "predicted" / "a8w8_blockscale_tuned_gemm.csv"
    assert capsys.readouterr().err.splitlines()[1] == f"hint: name them: {table}"
    assert run(["convert", str(table), "--out", str(tmp_path / "x.parquet")]) == ExitCode.OK
    assert "ckh train" not in capsys.readouterr().out
