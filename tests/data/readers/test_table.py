"""Tables of AMD's tools and of users: CSV and Parquet, `master_results.csv`, `--map`, `Dataset.from_frame`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ckh import Dataset
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.data.readers import find_reader, read_input
from ckh.data.readers.cells import WITHOUT_TIME
from ckh.errors import DataError, ExitCode, UsageError
from ckh.ops.gemm_universal.readers.gemm_table import NOT_RUN
from tests.refusals import expect_error, expect_refusal
from tests.shared import DATA

AMD_FILES = Path(__file__).parents[2] / "amd_files"
SWEEP, MASTER = AMD_FILES / "sweep_results.csv", AMD_FILES / "master_results.csv"
CONV = AMD_FILES / "training_data_forward_bf16_20.csv"
GFX942 = ReadOptions(arch="gfx942", strict=True)
GFX950 = ReadOptions(arch="gfx950", strict=True)
NAME = "gemm_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_4x1x1_16x16x16"
FULL = NAME.replace("gemm_", "gemm_universal_")
ROW = {"kernel": NAME, "problem_idx": 0, "M": 1024, "N": 512, "K": 256, "latency_ms": 0.5, "tflops": "", "non_zero": 9}


def rows_of(path: Path, options: ReadOptions = GFX942) -> list[dict[str, Any]]:
    """Read the rows of a file."""
    rows: list[dict[str, Any]] = read_input(path, options).rows.table().to_pylist()
    return rows


def write(folder: Path, *rows: dict[str, Any], name: str = "sweep.csv") -> Path:
    """Write a CSV file of rows, each given by its differences from `ROW`."""
    path = folder / name
    pd.DataFrame([ROW | row for row in rows]).to_csv(path, index=False)
    return path


def exact(path: Path) -> pd.DataFrame:
    """Read a CSV file with pandas, numbers to the last digit."""
    return pd.read_csv(path, converters={"latency_ms": float, "tflops": float})


def test_the_published_gemm_sweep(tmp_path: Path) -> None:
    """Times, sizes and kernels equal those in the text; pandas is the reference."""
    assert find_reader(SWEEP).name == "tile-engine-csv"
    expected = exact(SWEEP)
    rows = pd.DataFrame(rows_of(SWEEP))
    assert rows["latency_ms"].tolist() == expected["latency_ms"].tolist()
    assert rows[["m", "n", "k"]].to_numpy().tolist() == expected[["M", "N", "K"]].to_numpy().tolist()
    assert rows["non_zero"].tolist() == expected["non_zero"].tolist()
    np.testing.assert_allclose(rows["tflops"], expected["tflops"], rtol=1e-9)
    assert rows["kernel"].tolist() == [name.replace("gemm_", "gemm_universal_") for name in expected["kernel"]]
    assert set(rows["status"]) == {"ok"}
    assert (rows["dtype"].iloc[0], rows["layout"].iloc[0], rows["arch"].iloc[0]) == ("fp16", "rcr", "gfx942")


def test_both_spellings_of_names_are_one_kernel(tmp_path: Path) -> None:
    """Names with and without `universal` are repeated measurements of one kernel."""
    rows = rows_of(write(tmp_path, {}, {"kernel": FULL}))
    assert [row["kernel"] for row in rows] == [FULL, FULL]


def test_failures_have_no_time(tmp_path: Path) -> None:
    """Rows marked as failed have a failure's status, zeros and unverified rows are wrong results."""
    path = write(
        tmp_path,
        {"verified": True},
        {"latency_ms": "", "verified": False},
        {"non_zero": 0, "verified": ""},
        {"verified": False},
        {"non_zero": "", "verified": ""},
    )
    rows = rows_of(path)
    assert [row["status"] for row in rows] == ["ok", "launch_error", *["wrong_result"] * 2, "ok"]
    assert [row["latency_ms"] for row in rows] == [0.5, None, 0.5, 0.5, 0.5]
    assert [row["is_valid"] for row in rows] == [True, False, False, False, True]
    assert rows[3]["message"]
    assert rows[4]["non_zero"] is None


@pytest.mark.parametrize("time", ["", "nan", "inf", 0])
def test_a_row_without_a_time_is_left_out_and_counted(tmp_path: Path, time: object) -> None:
    """It is neither an error nor a failure of its kernel."""
    reading = read_input(write(tmp_path, {}, {"latency_ms": time}), GFX942)
    assert (reading.account.left_out, reading.rows.table()["status"].to_pylist()) == ({WITHOUT_TIME: 1}, ["ok"])


def test_the_form_of_master_results() -> None:
    """One row per problem, of the fastest kernel, in two element types; the comment before the header is skipped."""
    assert find_reader(MASTER).name == "master-csv"
    rows = rows_of(MASTER, GFX950)
    assert [(row["dtype"], row["m"], row["n"], row["k"], row["latency_ms"]) for row in rows] == [
        ("bf16", 4096, 9, 8192, 0.05),
        ("bf16", 4096, 17, 8192, 0.06),
        ("fp8", 2048, 1024, 4096, 0.04),
        ("bf16", 4096, 33, 8192, 0.08),
    ]
    assert [row["tflops"] for row in rows] == pytest.approx([12.08, 19.014, 429.497, 27.682], rel=1e-4)
    assert rows[2]["pad_m"] == 1


def test_a_problem_without_a_working_kernel_is_left_out(tmp_path: Path) -> None:
    """Such a row has no information on any kernel."""
    lines = MASTER.read_text(encoding="utf-8").splitlines()
    cells = lines[2].split(",")
    cells[16] = cells[18] = cells[19] = ""
    path = tmp_path / "master_results.csv"
    path.write_text("\n".join([*lines[1:], ",".join(cells)]) + "\n", encoding="utf-8")
    reading = read_input(path, GFX950)
    assert len(reading.rows) == 4
    assert reading.account.left_out == {NOT_RUN: 1}


def amd_parquet(path: Path, **changes: Any) -> Path:
    """Write the rows of AMD's sweep as `data_pipeline.py` does: 33 columns."""
    source = exact(SWEEP)
    frame = pd.DataFrame(
        {
            "op_type": "gemm_universal",
            "dtype": "fp16",
            "layout": "rcr",
            "arch": "gfx942",
            "kernel_name": source["kernel"],
            "m": source["M"],
            "n": source["N"],
            "k": source["K"],
            "split_k": 1,
            "measured_tflops": source["tflops"],
            "latency_ms": source["latency_ms"],
            "bandwidth_gb_s": 1.0,
            "is_valid": True,
            **dict.fromkeys(("tile_m", "tile_n", "tile_k"), 64),
            **dict.fromkeys(("warp_m", "warp_n", "warp_k"), 1),
            **dict.fromkeys(("warp_tile_m", "warp_tile_n", "warp_tile_k"), 16),
            **dict.fromkeys(("pipeline", "scheduler", "epilogue"), "x"),
            **dict.fromkeys(("pad_m", "pad_n", "pad_k", "persistent"), False),
            **dict.fromkeys(("vec_a", "vec_b", "vec_c"), 0),
            "run_id": "0",
        }
    ).assign(**changes)
    frame.to_parquet(path, index=False)
    return path


def test_amds_parquet_has_the_rows_of_the_csv(tmp_path: Path) -> None:
    """Rows are equal except for provenance and output counts; failures have a status and no time."""
    path = amd_parquet(tmp_path / "fp16.parquet")
    assert len(pd.read_parquet(path).columns) == 33
    assert find_reader(path).name == "gemm-parquet"
    ours, theirs = (pd.DataFrame(rows).drop(columns=["run_id", "non_zero"]) for rows in (rows_of(path), rows_of(SWEEP)))
    pd.testing.assert_frame_equal(ours, theirs)
    failed = rows_of(amd_parquet(tmp_path / "failed.parquet", is_valid=False, latency_ms=0.0, measured_tflops=0.0))
    assert {(row["status"], row["latency_ms"]) for row in failed} == {("launch_error", None)}


def test_the_parquet_states_the_architecture(tmp_path: Path) -> None:
    """By default the architecture is the file's; another architecture is refused, and so are several in one file."""
    path = amd_parquet(tmp_path / "a.parquet")
    assert {row["arch"] for row in rows_of(path, ReadOptions())} == {"gfx942"}
    with expect_refusal(UsageError, "mismatch", "gfx942", "gfx950"):
        rows_of(path, GFX950)
    archs = ["gfx942:sramecc+"] + ["gfx950"] * (len(exact(SWEEP)) - 1)
    with expect_refusal(DataError, "mixed-data", "gfx942", "gfx950"):
        rows_of(amd_parquet(tmp_path / "b.parquet", arch=archs), ReadOptions())


def test_a_table_that_contradicts_a_name_is_refused(tmp_path: Path) -> None:
    """Contradictory element types give one line, with the first rows named."""
    with expect_refusal(DataError, "bad-row", "bf16", "fp16"):
        rows_of(amd_parquet(tmp_path / "a.parquet", dtype="bf16"))


def test_the_published_convolutions_and_their_parquet(tmp_path: Path) -> None:
    """The output of `convert_csv_to_parquet.py` for AMD's CSV has the rows of the CSV."""
    frame = exact(CONV).rename(columns={"kernel": "kernel_name"})
    frame = frame.assign(block_size=16, gemm_m_per_block=64, arch="gfx950", is_valid=True, run_id=0, hw_num_cus=256)
    path = tmp_path / "conv.parquet"
    frame.to_parquet(path, index=False)
    assert find_reader(path).name == "amd-parquet"
    assert find_reader(CONV).name == "amd-csv"
    ours, theirs = (
        pd.DataFrame(rows).drop(columns=["run_id"]) for rows in (rows_of(path, GFX950), rows_of(CONV, GFX950))
    )
    pd.testing.assert_frame_equal(ours, theirs)
    assert ours["latency_ms"].tolist() == exact(CONV)["latency_ms"].tolist()


def test_an_empty_optional_column_is_no_error(tmp_path: Path) -> None:
    """TFLOPS, output counts, dilations and depth are optional; the default convolution is 2D without dilation."""
    frame = exact(CONV).assign(tflops="", non_zero="", Di="", Z="", stride_d="", pad_d="", dilation_d="")
    path = tmp_path / "conv.csv"
    frame.to_csv(path, index=False)
    rows, plain = rows_of(path, GFX950), rows_of(CONV, GFX950)
    assert [row["non_zero"] for row in rows] == [None] * len(plain)
    same = ("latency_ms", "tflops", "Di", "dilation_d", "status", "kernel")
    assert [[row[name] for name in same] for row in rows] == [[row[name] for name in same] for row in plain]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": NAME.replace("compv3", "compv9")}, "unknown pipeline 'compv9'"),
        ({"kernel": NAME.replace("cshuffle", "shuffle")}, "its epilogue is missing or unknown"),
        ({"kernel": "gemm_universal_fp16_rcr_64x64x64_compv3_intrawave"}, "has no wave_m"),
        ({"M": 0}, "m must be 1 or more"),
        ({"M": "many"}, "m is 'many'"),
        ({"latency_ms": -1}, "latency_ms is -1"),
        ({"latency_ms": "fast"}, "latency_ms is 'fast'"),
    ],
)
def test_bad_rows_are_one_line_and_nothing_is_written(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other rows are kept and the bad row is counted; with --strict the exit code is 4."""
    path, out = write(tmp_path, {}, changes), tmp_path / "out.parquet"
    words = ["convert", str(path), "--arch", "gfx942", "--out", str(out)]
    assert run([*words, "--strict"]) == ExitCode.BAD_DATA
    first = capsys.readouterr().err.splitlines()[0]
    assert message in first
    assert "line 3" in first
    assert not out.exists()
    assert run(words) == ExitCode.OK
    assert len(read_dataset(out)) == 1


def test_any_table_can_be_mapped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--map renames columns, with times in microseconds or speeds in TFLOPS, for CSV and Parquet."""
    frame = pd.DataFrame({"name": [NAME], "rows": [1024], "cols": [512], "inner": [256], "us": [500.0], "note": ["x"]})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    frame.to_parquet(tmp_path / "mine.parquet", index=False)
    maps = {"kernel": "name", "m": "rows", "n": "cols", "k": "inner", "latency_us": "us"}
    options = [word for ours, theirs in maps.items() for word in ("--map", f"{ours}={theirs}")]
    for name in ("mine.csv", "mine.parquet"):
        out = tmp_path / f"{name}.out.parquet"
        words = ["convert", str(tmp_path / name), "--op", "gemm_universal", "--arch", "gfx942", *options]
        assert run([*words, "--out", str(out), "--json"]) == ExitCode.OK
        document = json.loads(capsys.readouterr().out)
        assert (document["rows"], document["valid"]) == (1, 1)
        row = read_dataset(out).frame.iloc[0]
        assert (row["m"], row["n"], row["k"], row["latency_ms"]) == (1024, 512, 256, 0.5)
        assert row["tflops"] == pytest.approx(2 * 1024 * 512 * 256 / 0.5e-3 / 1e12)


def test_columns_of_our_names_need_no_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--op alone reads them; without it the hint names --op."""
    frame = pd.DataFrame({"kernel": [NAME], "m": [1024], "n": [512], "k": [256], "latency_ms": [0.5], "note": ["x"]})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    words = ["convert", str(tmp_path / "mine.csv"), "--arch", "gfx942", "--out", str(tmp_path / "out.parquet")]
    assert run(words) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "unknown-format", "--op")
    assert run([*words, "--op", "gemm_universal"]) == ExitCode.OK
    made = read_dataset(tmp_path / "out.parquet").frame
    assert made[["m", "n", "k", "latency_ms"]].to_numpy().tolist() == [[1024, 512, 256, 0.5]]


def test_a_data_frame() -> None:
    """`Dataset.from_frame` takes the same mapping; speeds become times; all missing columns are listed."""
    frame = pd.DataFrame({"name": [NAME], "M": [1024], "N": [512], "K": [256], "rate": [0.536870912], "empty": [None]})
    made = Dataset.from_frame(frame, op="gemm_universal", arch="gfx942", mapping={"kernel": "name", "tflops": "rate"})
    assert made.frame["latency_ms"].tolist() == pytest.approx([0.5])
    assert made.op_type == "gemm_universal"
    with expect_refusal(DataError, "missing-column", "kernel", "latency_ms", "latency_us"):
        Dataset.from_frame(frame, op="gemm_universal", arch="gfx942")
    conv = exact(CONV).rename(columns={"latency_ms": "t", "kernel": "who"}).assign(t=lambda f: f["t"] * 1000)
    mapping = {"kernel": "who", "latency_us": "t"}
    made = Dataset.from_frame(conv.drop(columns=["tflops"]), op="grouped_conv", arch="gfx950", mapping=mapping)
    assert sorted(made.frame["latency_ms"]) == pytest.approx(sorted(exact(CONV)["latency_ms"]))
    speeds = {"kernel": "who"}
    made = Dataset.from_frame(conv.drop(columns=["t"]), op="grouped_conv", arch="gfx950", mapping=speeds)
    assert sorted(made.frame["latency_ms"]) == pytest.approx(sorted(exact(CONV)["latency_ms"]), rel=1e-6)


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "value"),
    [
        (["--map", "kernel"], ExitCode.USAGE, "bad-mapping", "'kernel'"),
        (["--map", "kernel=a", "--map", "kernel=b"], ExitCode.USAGE, "duplicate-name", "kernel"),
        (["--op", "grouped_conv"], ExitCode.BAD_DATA, "missing-column", "C, G, Hi"),
        (["--map", "kernel=kernel"], ExitCode.USAGE, "missing-option", "--op"),
        (["--op", "aiter_gemm", "--map", "kernel=kernel"], ExitCode.USAGE, "inapplicable-option", "aiter_gemm"),
        (["--op", "gemm_universal", "--map", "mm=M"], ExitCode.USAGE, "missing-column", "'mm'"),
        (["--op", "gemm_universal", "--map", "m=Q"], ExitCode.BAD_DATA, "missing-column", "'Q'"),
        (
            ["--op", "grouped_conv", "--map", "kernel=kernel"],
            ExitCode.BAD_DATA,
            "missing-column",
            "C, G, Hi, Wi, Y, X, stride_h",
        ),
        (
            ["--from", "bench-log", "--op", "gemm_universal", "--map", "m=M"],
            ExitCode.USAGE,
            "conflicting-options",
            "--from",
        ),
        (["--from", "bench-log", "--op", "gemm_universal"], ExitCode.USAGE, "conflicting-options", "--op"),
    ],
)
def test_mappings_that_are_refused(
    words: list[str],
    exit_code: ExitCode,
    code: str,
    value: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line gives the error, and nothing is written."""
    out = tmp_path / "out.parquet"
    assert run(["convert", str(SWEEP), "--arch", "gfx942", "--out", str(out), *words]) == exit_code
    expect_error(capsys.readouterr().err, code, value)
    assert not out.exists()


def test_all_rows_of_the_published_sweep(tmp_path: Path) -> None:
    """All 128 rows of the run are read, with its times in microseconds."""
    path = DATA / "new" / "cktile_gemm_fp16_rcr_gfx942_32kernels.parquet"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    frame = pd.read_parquet(path)
    made = Dataset.from_frame(
        frame[frame["run"] == "a"], op="gemm_universal", mapping={"latency_us": "latency_us", "kernel": "kernel"}
    )
    assert (len(made), made.arch, made.frame["kernel"].nunique()) == (128, "gfx942", 32)
