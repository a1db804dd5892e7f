"""User find databases are written as MIOpen writes them, from measured rows only, and read back without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from ckh.cli import run
from ckh.data.dataset import make_dataset, read_dataset, write_dataset
from ckh.errors import ExitCode
from ckh.ops.miopen_conv.consumers import key_text, line_text
from ckh.ops.miopen_conv.readers.fdb_line import parse_line
from tests.refusals import expect_error

if TYPE_CHECKING:
    from pathlib import Path

F = "miopenConvolutionFwdAlgo"
# MIOpen's own text: directions, layouts, dimensions, groups, element types and times of all magnitudes.
LINES = (
    f"256-14-14-3x3-128-14-14-32-1x1-1x1-1x1-0-NCHW-FP32-F=ConvAsm3x3U:0.25,0,{F}Direct;GemmFwdRest:1.5,64,{F}GEMM",
    "64-7-7-1x1-32-14-14-8-0x0-2x2-1x1-0-NCHW-FP16-B=GemmBwd1x1_stride2:3.5,401408,miopenConvolutionBwdDataAlgoGEMM",
    (
        "32-8-8-1x1-16-8-8-4-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-BF16-W_g2="
        "ConvHipImplicitGemmGroupWrwXdlops:0.0123456,1024,miopenConvolutionBwdWeightsAlgoImplicitGEMM"
    ),
    (
        "16-4-9-9-3x3x3-32-4-9-9-2-1x1x1-1x1x1-1x1x1-0-NCDHW-FP32-F="
        f"ConvBinWinogradRxSf2x3:123.457,0,{F}Winograd;fft:1e-05,0,{F}FFT"
    ),
)
NAME = "gfx942130.HIP.3_5_1_8d1ae90e.ufdb.txt"


def write(folder: Path, *lines: str, name: str = NAME) -> Path:
    """Write a find database."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.mark.parametrize("line", LINES)
def test_a_line_round_trips(line: str) -> None:
    """Key, solvers, times, workspaces and algorithms equal MIOpen's text."""
    record = parse_line(line)
    assert line_text(record) == line
    assert key_text(record.problem) == line.partition("=")[0]


def test_a_round_trip_loses_nothing(tmp_path: Path) -> None:
    """From a database to a dataset and back, the fastest solver of each problem first, by both commands."""
    source = write(tmp_path / "in", *LINES)
    data = tmp_path / "data.parquet"
    assert run(["convert", str(source), "--out", str(data)]) == ExitCode.OK
    fastest = LINES[3].partition("=")[0] + f"=fft:1e-05,0,{F}FFT;ConvBinWinogradRxSf2x3:123.457,0,{F}Winograd"
    wanted = "".join(line + "\n" for line in (*LINES[:3], fastest))
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / NAME
    assert run(["export", "--to", "miopen", "--data", str(data), "--out", str(out)]) == ExitCode.OK
    assert out.read_text() == wanted
    again = tmp_path / NAME
    assert run(["convert", str(out), "--from", "miopen-fdb", "--to", "miopen", "--out", str(again)]) == ExitCode.OK
    assert again.read_text() == wanted


def test_databases_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several inputs become one database; an existing file is replaced with --force only, and only by its kind."""
    item, two = write(tmp_path / "a", LINES[0]), write(tmp_path / "b", LINES[1])
    out = tmp_path / NAME
    args = ["export", "--to", "miopen", "--data", str(item), "--data", str(two), "--out", str(out)]
    assert run(args) == ExitCode.OK
    assert out.read_text().splitlines() == list(LINES[:2])
    assert run(args) == ExitCode.USAGE
    assert run([*args, "--force"]) == ExitCode.OK
    out.write_text("my notes")
    assert run([*args, "--force"]) == ExitCode.USAGE
    assert out.read_text() == "my notes"
    expect_error(capsys.readouterr().err, "foreign-output", out)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("gfx90a68.HIP.3_5_1.ufdb.txt", ExitCode.BAD_DATA, "the rows are of gfx942 with 304 CUs"),
        ("gfx942e4.HIP.3_5_1.ufdb.txt", ExitCode.BAD_DATA, "is for gfx942 with 228"),
        ("mine.ufdb.txt", ExitCode.USAGE, "does not state architecture"),
    ],
)
def test_a_database_names_the_measured_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: ExitCode, words: str
) -> None:
    """The name must state the rows' architecture and compute units; otherwise nothing is written."""
    source = write(tmp_path / "in", LINES[0])
    assert run(["export", "--to", "miopen", "--data", str(source), "--out", str(tmp_path / name)]) == code
    assert words in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_nothing_predicted_or_incomplete_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Predictions are refused, as are rows without a workspace, which MIOpen would take as none."""
    data = tmp_path / "data.parquet"
    assert run(["convert", str(write(tmp_path / "in", LINES[0])), "--out", str(data)]) == ExitCode.OK
    frame = read_dataset(data).frame
    args = ["export", "--to", "miopen", "--data", str(data), "--out", str(tmp_path / NAME)]
    guess: dict[str, object] = {"status": "predicted", "is_valid": False, "latency_ms": float("nan")}
    for change, words in (
        (guess, "predictions of ckh"),
        ({"workspace_bytes": pd.NA}, "the workspace of ConvAsm3x3U is unknown"),
    ):
        write_dataset(make_dataset(frame.assign(**change)), data)
        assert run(args) == ExitCode.BAD_DATA
        assert words in capsys.readouterr().err
        assert not (tmp_path / NAME).exists()
