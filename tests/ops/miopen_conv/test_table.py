"""Tables of solver times, from text and from frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ckh.data.conversion import convert
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.errors import DataError, UsageError
from ckh.ops.miopen_conv.problem import MiopenProblem
from ckh.ops.miopen_conv.readers.fdb import FdbDevice
from ckh.ops.miopen_conv.readers.solver_table import IDENTITY, from_frame, read_fdb, read_parquet
from ckh.problems import Direction
from tests.refusals import expect_refusal

DEVICE = FdbDevice("gfx90a", 104)
# The rows of `frame`, as MIOpen writes them.
TEXT = """\
8-14-14-3x3-16-14-14-2-1x1-1x1-1x1-0-NCHW-FP32-F=ConvBinWinogradRxSf3x2:0.5,0,miopenConvolutionFwdAlgoWinograd;\
GemmFwdRest:1,0,miopenConvolutionFwdAlgoGEMM
16-14-14-3x3-8-14-14-2-1x1-1x1-1x1-0-NCHW-FP32-W=GemmWrwUniversal:2,0,miopenConvolutionBwdWeightsAlgoGEMM;\
ConvOclBwdWrW2<4>:4,0,miopenConvolutionBwdWeightsAlgoDirect
8-14-14-1x1-16-7-7-2-0x0-2x2-1x1-0-NCHW-FP32-F=GemmFwd1x1_0_2:0.25,0,miopenConvolutionFwdAlgoGEMM;\
ConvAsm1x1U:0,0,miopenConvolutionFwdAlgoDirect
16-4-14-14-3x3x3-8-4-14-14-2-1x1x1-1x1x1-1x1x1-0-NCDHW-FP32-B=GemmBwdRest:3,0,miopenConvolutionBwdDataAlgoGEMM
"""


def test_text_and_frame_give_the_same_table(tmp_path: Path, frame: pd.DataFrame) -> None:
    """Six rows with a time, equal in all columns that both have, and one without."""
    path = tmp_path / "gfx90a68.fdb.txt"
    path.write_text(TEXT)
    text, other = read_fdb(path), from_frame(frame, DEVICE)
    columns = [*IDENTITY, "kernel", "latency_ms"]
    assert text.frame[columns].to_dict("records") == other.frame[columns].to_dict("records")
    assert (text.device, text.without_time, len(text.frame)) == (DEVICE, 1, 6)
    assert (other.device, other.without_time, other.bad) == (DEVICE, 1, {})
    assert list(text.frame["algorithm"]) == ["winograd", "gemm", "gemm", "direct", "gemm", "gemm"]


def test_a_problem_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    """Two times of one solver on one problem are ambiguous."""
    path = tmp_path / "gfx90a68.fdb.txt"
    path.write_text(TEXT + TEXT.splitlines(keepends=True)[0])
    with expect_refusal(DataError, "duplicate-rows", "2", "ConvBinWinogradRxSf3x2", "miopen_conv_forward"):
        read_fdb(path)


def test_problems_and_sizes_are_numbered(frame: pd.DataFrame) -> None:
    """Four problems of three sizes: directions are distinct problems of the same size."""
    table = from_frame(frame, DEVICE)
    assert table.problem_ids().tolist() == [0, 0, 1, 1, 2, 3]
    assert table.size_ids().tolist() == [0, 0, 0, 0, 1, 2]
    problems = table.problems()
    assert problems[1] == MiopenProblem(Direction.BWD_WEIGHT, 2, 8, 16, 1, 14, 14, 3, 3, pad_h=1, pad_w=1)
    assert [problem.canonical()[:28] for problem in problems[2:]] == [
        "miopen_conv_forward_fp32_nch",
        "miopen_conv_bwd_data_fp32_nc",
    ]


def test_a_choice_needs_two_solvers(frame: pd.DataFrame) -> None:
    """Problems with one timed solver are excluded."""
    assert from_frame(frame, DEVICE).of_choice().frame["latency_ms"].tolist() == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"direction": "X"}, "direction"),
        ({"dtype": "FP64"}, "dtype"),
        ({"layout": "NCDHW"}, "layout"),
        ({"ndim": 4}, "layout"),
        ({"solver": ""}, "solver"),
        ({"solver": None}, "solver"),
        ({"G": 3}, "impossible problem"),
        ({"G": 0}, "impossible problem"),
        ({"pad_h": -1}, "impossible problem"),
        ({"stride_h": 0}, "impossible problem"),
        ({"Hi": 0}, "impossible problem"),
        ({"Y": 20}, "output size"),
        ({"Ho": 13}, "output size"),
        ({"time_ms": -1.0}, "number"),
        ({"time_ms": 1e-10}, "number"),
        ({"solver": "GemmFwdRest"}, "solver twice"),
    ],
)
def test_bad_rows_are_counted_by_reason(frame: pd.DataFrame, changes: dict[str, Any], reason: str) -> None:
    """A bad row refuses the frame, or is skipped and counted; the others remain."""
    good = frame.assign(Do=[1] * 6 + [4], Ho=[14] * 4 + [7] * 2 + [14], Wo=[14] * 4 + [7] * 2 + [14])
    extra = good.iloc[[0]].assign(**{"solver": "ConvAsm3x3U", "C": 32, **changes})
    if reason == "solver twice":
        extra["C"] = 8
    whole = pd.concat([good, extra])
    with expect_refusal(DataError, "bad-row", "1", "1", reason):
        from_frame(whole, DEVICE)
    table = from_frame(whole, DEVICE, skip_bad=True)
    assert table.bad == {reason: 1}
    assert len(table.frame) == 6


def test_missing_columns_are_named(frame: pd.DataFrame) -> None:
    """A frame without a required column is refused with its name."""
    with expect_refusal(DataError, "missing-column", "layout", "pad_h"):
        from_frame(frame.drop(columns=["pad_h", "layout"]), DEVICE)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    """A missing file, and a file that is not Parquet, are data errors."""
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    for name in ("x.parquet", "y.parquet"):
        with expect_refusal(DataError, "unreadable"):
            read_parquet(tmp_path / name, DEVICE)


@pytest.mark.parametrize("time", [0.0, float("nan"), float("inf")])
def test_rows_without_a_time_are_counted(frame: pd.DataFrame, time: float) -> None:
    """They are no solvers of their problem, and not bad."""
    timed = frame[frame["time_ms"] > 0].reset_index(drop=True)
    table = from_frame(timed.assign(time_ms=[time, *timed["time_ms"][1:]]), DEVICE)
    assert (len(table.frame), table.without_time, table.bad) == (len(timed) - 1, 1, {})


@pytest.mark.slow
def test_the_shared_database(mi200: Path) -> None:
    """Of 519,820 rows 941 have no time and 953 an output that contradicts their sizes; problems are as documented."""
    table = read_parquet(mi200, DEVICE, skip_bad=True)
    assert (len(table.frame), table.without_time, table.bad) == (517_926, 941, {"output size": 953})
    ids = table.problem_ids()
    few = table.select(ids < 200)
    problems = few.problems()
    assert len(problems) == 200
    first = np.unique(few.problem_ids(), return_index=True)[1]
    assert [p.columns()["Hi"] for p in problems] == few.frame["Hi"].iloc[first].tolist()


def test_convert_reads_parquet_of_find_databases(frame: pd.DataFrame, tmp_path: Path) -> None:
    """A Parquet file with their columns becomes a dataset; its name, or the options, state the device."""
    frame.to_parquet(tmp_path / "miopen_finddb_gfx90a_104cu.parquet")
    out = tmp_path / "out.parquet"
    convert([tmp_path / "miopen_finddb_gfx90a_104cu.parquet"], out, ReadOptions())
    made = read_dataset(out)
    assert (made.op.name, made.arch, made.hardware()["num_cus"]) == ("miopen_conv", "gfx90a", 104)
    assert made.frame["latency_ms"].tolist() == [0.5, 1.0, 2.0, 4.0, 0.25, 3.0]
    frame.to_parquet(tmp_path / "times.parquet")
    with expect_refusal(UsageError, "unknown-hardware"):
        convert([tmp_path / "times.parquet"], out, ReadOptions())
    convert([tmp_path / "times.parquet"], out, ReadOptions(arch="gfx942", num_cus=304))
    assert read_dataset(out).hardware()["num_cus"] == 304


def test_damaged_or_unknown_parquet_is_refused(tmp_path: Path) -> None:
    """Convert names a Parquet file that is unreadable, of an unknown format, or a dataset already."""
    (tmp_path / "cut.parquet").write_bytes(b"PAR1nothing")
    with expect_refusal(DataError, "unreadable"):
        convert([tmp_path / "cut.parquet"], tmp_path / "out.parquet", ReadOptions())
    pd.DataFrame({"mood": [1]}).to_parquet(tmp_path / "mood.parquet")
    with expect_refusal(DataError, "unknown-format"):
        convert([tmp_path / "mood.parquet"], tmp_path / "out.parquet", ReadOptions())
    dataset = Path(__file__).parents[3] / "data" / "aiter-moe-gfx942.parquet"
    with expect_refusal(DataError, "already-converted"):
        convert([dataset], tmp_path / "out.parquet", ReadOptions())
