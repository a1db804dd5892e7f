"""Conversion: rows of a dataset and their order, independent of the block size."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ckh.data import conversion
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.data.readers import cells
from ckh.errors import DataError
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = [
    f"grouped_conv_forward_bf16_2d_{tile}_{pipeline}_intrawave"
    for tile in ("64x32x16", "128x64x32", "64x64x64")
    for pipeline in ("compv3", "compv4", "mem")
]
SIZES = "0,{n},64,128,2,1,28,28,1,3,3,1,1,1,0,1,1,1,1,1"


def write_inputs(folder: Path) -> list[Path]:
    """Three files of 40 problems: with failures, wrong TFLOPS, repeated pairs, wrong numbers and truncated rows."""
    draw = random.Random(7)
    paths = []
    for name in "abc":
        lines: list[str] = []
        for n in range(1, 41):
            for kernel in draw.sample(KERNELS, 5):
                ms = round(draw.uniform(0.1, 1.0), 4)
                flops = n * 57_802_752 / ms / 1e9 * draw.choice((1.0, 1.0, 2.0))
                lines.append(f"{kernel},{SIZES.format(n=n)},{ms},{flops:.6g},{draw.choice((9, 9, 9, 0))}")
        for _ in range(12):
            lines.append(draw.choice(lines).replace(",9", ",8"))
        lines += ["cut,1,2", lines[0].replace("bf16", "bf17"), lines[1].replace(",64,", ",x,", 1)]
        draw.shuffle(lines)
        path = folder / f"{name}.csv"
        path.write_text("\n".join([",".join(AMD_COLUMNS), *lines]) + "\n", encoding="ascii")
        paths.append(path)
    return paths


@pytest.mark.parametrize(("given", "stored"), [(None, 304), (80, 80)])
def test_stated_compute_units_are_stored(tmp_path: Path, given: int | None, stored: int) -> None:
    """AMD's CSV states none: they are the caller's, else those of the architecture."""
    options = ReadOptions(arch="gfx942", num_cus=given)
    conversion.convert(write_inputs(tmp_path)[:1], tmp_path / "out.parquet", options)
    assert read_dataset(tmp_path / "out.parquet").num_cus == stored


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", [1 << 23, 3000])
def test_rows_do_not_depend_on_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    """Rows, their order, counts and messages do not depend on the block size, and equal the recorded ones."""
    monkeypatch.setattr(cells, "_BLOCK_BYTES", block_bytes)
    inputs, out = write_inputs(tmp_path), tmp_path / "out.parquet"
    summary = conversion.convert(inputs, out, ReadOptions(arch="gfx942"))
    assert (summary.rows, summary.repeated, summary.sha256[:16]) == (335, 265, "b102c23378f958d6")
    assert read_dataset(out).content_hash == summary.sha256
    assert sorted(summary.dropped.values()) == [3, 3, 3]
    expect_values(summary.warnings[0], 75, "line 3", 2.57037, 1.28519)
    with expect_refusal(DataError, "bad-row", "22", "x"):
        conversion.convert(inputs, tmp_path / "none.parquet", ReadOptions(arch="gfx942", strict=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv", "c.csv", "out.parquet"]
