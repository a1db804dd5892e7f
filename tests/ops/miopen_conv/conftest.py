"""Location of the shared data, and small databases made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tests.shared import DATA

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def mi200() -> Path:
    """Path of the MI200 database; skips the test without it."""
    path = DATA / "miopen_finddb_gfx90a_104cu.parquet"
    if not path.is_file():
        pytest.skip("the shared find database of the MI200 is not beside this checkout")
    return path


@pytest.fixture
def frame() -> pd.DataFrame:
    """Seven rows of four problems: 3x3 in F and W, 1x1 strided in F, 3D in B with one solver only."""
    sizes = {"N": 2, "C": 8, "K": 16, "G": 1, "Di": 1, "Hi": 14, "Wi": 14, "Z": 1, "Y": 3, "X": 3}
    steps = {f"{what}_{axis}": int(what != "pad") for what in ("stride", "pad", "dilation") for axis in "dhw"}
    same = {**sizes, **steps, "pad_h": 1, "pad_w": 1, "dtype": "FP32", "layout": "NCHW", "ndim": 2}
    strided = {**same, "Y": 1, "X": 1, "pad_h": 0, "pad_w": 0, "stride_h": 2, "stride_w": 2}
    deep = {**same, "ndim": 3, "layout": "NCDHW", "Di": 4, "Z": 3, "pad_d": 1}
    rows = [
        {**same, "direction": "F", "solver": "ConvBinWinogradRxSf3x2", "time_ms": 0.5},
        {**same, "direction": "F", "solver": "GemmFwdRest", "time_ms": 1.0},
        {**same, "direction": "W", "solver": "GemmWrwUniversal", "time_ms": 2.0},
        {**same, "direction": "W", "solver": "ConvOclBwdWrW2<4>", "time_ms": 4.0},
        {**strided, "direction": "F", "solver": "GemmFwd1x1_0_2", "time_ms": 0.25},
        {**strided, "direction": "F", "solver": "ConvAsm1x1U", "time_ms": 0.0},
        {**deep, "direction": "B", "solver": "GemmBwdRest", "time_ms": 3.0},
    ]
    made: pd.DataFrame = pd.DataFrame(rows)
    return made
