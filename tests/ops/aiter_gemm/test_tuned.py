"""AITER's tuned tables become datasets of winners; unusable rows are counted or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from benchmarks.collected import converted
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.errors import ExitCode
from ckh.ops.aiter_gemm.problem import AiterGemm
from tests.refusals import expect_warning
from tests.shared import DATA

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = "a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3"
COLUMNS = ("gfx", "cu_num", "M", "N", "K", "q_dtype_w", "libtype", "kernelId", "splitK", "us", "kernelName")
ROW: dict[str, Any] = dict(
    zip(COLUMNS, ("gfx942", 80, 16, 1280, 8192, "torch.int8", "ck", 34, 2, 8.0, KERNEL), strict=True)
)


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    """Write a table of rows, each given by its differences from a valid row."""
    path = folder / "a8w8_tuned_gemm.csv"
    lines = [",".join(COLUMNS), *(",".join(str((ROW | row)[name]) for name in COLUMNS) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_row_is_a_measured_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shape, type, device, kernel with its split and time; another library's winner is skipped and counted."""
    path = write(tmp_path, {}, {"M": 32, "kernelName": "_ZN5aiter6triton"}, {"cu_num": 304, "splitK": 0, "us": 4})
    out = tmp_path / "data.parquet"
    assert run(["convert", str(path), "--out", str(out)]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "left-out", 1)
    dataset = read_dataset(out)
    problem = AiterGemm(16, 1280, 8192, "a8w8", "int8", num_cus=304)
    assert set(dataset.problems()) == {problem, AiterGemm(16, 1280, 8192, "a8w8", "int8", num_cus=80)}
    rows = {row["num_cus"]: row for row in dataset.frame.to_dict("records")}
    assert rows[80]["kernel"] == KERNEL + "_splitk2"
    assert (rows[80]["latency_ms"], rows[304]["latency_ms"], rows[304]["kernel"]) == (0.008, 0.004, KERNEL)
    assert rows[80]["tflops"] == pytest.approx(2 * 16 * 1280 * 8192 / 8e-6 / 1e12)
    assert rows[80]["hw_num_cus"] == 80


def test_rows_without_a_time_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Failures of AITER's tuner, whose times are infinite, NaN, 0, -1 or empty, are counted with the first line."""
    failed = ({"M": m, "us": us} for m, us in ((32, "inf"), (64, "nan"), (128, "0"), (256, ""), (512, "-1")))
    path, out = write(tmp_path, {}, *failed), tmp_path / "data.parquet"
    assert run(["convert", str(path), "--out", str(out)]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "left-out", 5, "line 3")
    assert [problem.m for problem in read_dataset(out).problems()] == [16]


def test_omitted_last_cells_are_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As pandas and AITER read a row that is shorter than the header; a longer one is left out with its line."""
    path, out = write(tmp_path, {}, {"M": 32}), tmp_path / "data.parquet"
    header, first, second = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{header},errRatio,_tag\n{first}\n{second},0,\n", encoding="utf-8")
    assert run(["convert", str(path), "--out", str(out)]) == ExitCode.OK
    assert sorted(problem.m for problem in read_dataset(out).problems()) == [16, 32]
    capsys.readouterr()
    path.write_text(f"{header}\n{first}\n{second},0,\n", encoding="utf-8")
    assert run(["convert", str(path), "--out", str(out), "--force"]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "left-out", 1, 12, 11, ":3")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"us": -2}, "us is '-2'"),
        ({"M": 0}, "m must be 1 or more"),
        ({"M": "x"}, "M is 'x'"),
        ({"us": "1_0"}, "us is '1_0'"),
        ({"q_dtype_w": "torch.float4"}, "a8w8 has no dtype 'float4'"),
    ],
)
def test_impossible_rows_are_left_out(
    row: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other rows are read; with --strict there is one line with the reason, and no file."""
    path, out = write(tmp_path, row, {"M": 64}), tmp_path / "data.parquet"
    assert run(["convert", str(path), "--out", str(out), "--strict"]) == ExitCode.BAD_DATA
    error = capsys.readouterr().err
    assert message in error
    assert "--strict" in error
    assert not out.exists()
    assert run(["convert", str(path), "--out", str(out)]) == ExitCode.OK
    assert [problem.m for problem in read_dataset(out).problems()] == [64]


def test_a_collection_is_read_as_its_tables(tmp_path: Path) -> None:
    """In Parquet of many tables, the later time of a shape tuned again with the same winner is used."""
    columns: dict[str, list[Any]] = {
        "family": ["a8w8"] * 3,
        "gfx": ["gfx942", "gfx942", ""],
        "cus": [80, 80, 304],
        "M": [16] * 3,
        "N": [1280] * 3,
        "K": [8192] * 3,
        "q_dtype_w": [""] * 3,
        "kernel": [KERNEL] * 3,
        "split_k": [0] * 3,
        "time_us": [5.0, 6.0, 3.0],
        "first": ["2025-01-01"] * 3,
        "last": ["2026-02-01", "2025-01-01", "2025-01-01"],
        "library": ["ck"] * 3,
        "path": ["aiter/configs/a8w8_tuned_gemm.csv"] * 3,
        "at_head": [True, False, True],
        "gfx_stated": [True, True, False],
    }
    path, out = tmp_path / "all.parquet", tmp_path / "data.parquet"
    pd.DataFrame(columns).to_parquet(path)
    converted(path, out, ReadOptions())
    frame = read_dataset(out).frame
    assert dict(zip(frame["num_cus"], frame["latency_ms"], strict=True)) == {80: 0.005, 304: 0.003}
    assert set(frame["arch"]) == {"gfx942"}
    assert set(frame["dtype"]) == {"int8"}, "what AITER's tuner made before its tables said it"


def test_a_real_table_is_read(tmp_path: Path) -> None:
    """AITER's own file, as in its repository."""
    path = DATA / "aiter_a8w8_bpreshuffle_tuned_gemm.csv"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    out = tmp_path / "data.parquet"
    assert run(["convert", str(path), "--out", str(out)]) == ExitCode.OK
    dataset = read_dataset(out)
    assert len(dataset) > 20
    assert {problem.family for problem in dataset.problems()} == {"a8w8_bpreshuffle"}
