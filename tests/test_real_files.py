"""Published measurements of others load unchanged: the result of `ckh convert`, without further options.

They are not part of the repository: a test is skipped if its file is missing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from benchmarks.collected import converted
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.errors import ExitCode
from tests.refusals import expect_warning
from tests.shared import DATA

if TYPE_CHECKING:
    from pathlib import Path


def real(name: str) -> Path:
    """A published file."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.parametrize(
    ("name", "rows", "problems", "archs"),
    [
        ("aiter_a8w8_tuned_gemm.csv", 579, 579, ["gfx942", "gfx950"]),
        ("aiter_a8w8_bpreshuffle_tuned_gemm.csv", 434, 434, ["gfx942", "gfx950"]),
        ("aiter_a8w8_blockscale_tuned_gemm.csv", 6_630, 6_630, ["gfx950"]),
    ],
)
def test_a_published_file_is_converted(
    name: str, rows: int, problems: int, archs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With only --out; rows of libraries that are not ranked are counted, and nothing is an error."""
    out = tmp_path / "out.parquet"
    assert run(["convert", str(real(name)), "--out", str(out), "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["problems"], document["archs"]) == (rows, problems, archs)
    assert len(read_dataset(out)) == rows


@pytest.mark.slow
def test_a_collected_file_is_converted(tmp_path: Path) -> None:
    """All measurements of AITER's tunings of mixtures, by the script that makes the data that ship."""
    out = tmp_path / "out.parquet"
    converted(real("new/aiter_moe_all_candidates.parquet"), out, ReadOptions())
    dataset = read_dataset(out)
    assert (len(dataset), len(dataset.problems()), dataset.archs) == (4_630, 612, ("gfx942", "gfx950"))


@pytest.mark.slow
def test_amd_csv_with_problems_measured_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AMD's benchmark of CK Tile, as CSV: a repeated problem is a repeated measurement, not an error."""
    frame = pd.read_parquet(real("new/cktile_conv_fwd_bf16_gfx950_20kernels.parquet"))
    sizes = ["N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "pad_h", "pad_w"]
    kernel = "grouped_conv_forward_bf16_2d_" + frame["tile"] + "_" + frame["pipeline"]
    table = frame.assign(kernel=kernel, latency_ms=frame["latency_us"] / 1000, non_zero=1)
    path, out = tmp_path / "training_data_forward_bf16.csv", tmp_path / "out.parquet"
    table[["kernel", "problem_idx", *sizes, "latency_ms", "tflops", "non_zero"]].to_csv(path, index=False)
    assert run(["convert", str(path), "--arch", "gfx950", "--out", str(out)]) == ExitCode.OK
    again = frame.duplicated([*sizes, "tile", "pipeline"]).sum()
    assert again >= 20
    expect_warning(capsys.readouterr().err, "conversion", again)
    dataset = read_dataset(out)
    assert len(dataset.problems()) == len(frame[sizes].drop_duplicates())
    assert len(dataset) == len(frame) - again
    # The geometric mean of a pair that was measured twice, as published.
    twice = frame[frame.duplicated([*sizes, "tile", "pipeline"], keep=False)]
    item = twice.iloc[0]
    times = twice.loc[(twice[[*sizes, "tile", "pipeline"]] == item[[*sizes, "tile", "pipeline"]]).all(axis=1)]
    result = dataset.frame
    is_one = np.logical_and.reduce([result[name].to_numpy() == item[name] for name in sizes])
    names = result["kernel"].astype(str).to_numpy()
    is_one &= np.array([f"_{item['tile']}_{item['pipeline']}" in name for name in names])
    expected = float(np.exp(np.log(times["latency_us"] / 1000).mean()))
    assert result.loc[is_one, "latency_ms"].to_list() == pytest.approx([expected])
