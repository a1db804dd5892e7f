"""FBGEMM's kernels: their names, the winners that its dispatch names without times, and models of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.collected import BAD_ROW, OTHER_KIND, REPLACED
from benchmarks.collected import converted as convert
from ckh.assess.times import efficiency_of
from ckh.assess.winners import winner_rows
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.errors import DataError, ExitCode, UsageError
from ckh.learn.training.prepared import with_rivals
from ckh.ops import operation
from ckh.ops.aiter_gemm.consumers import KIND
from ckh.ops.aiter_gemm.kernel import kernel_pool, parse_kernel
from ckh.ops.aiter_gemm.problem import AiterGemm, parse_aiter_gemm
from ckh.ops.base import Encoding
from tests.refusals import expect_error, expect_refusal

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset

SMALL = "fp8_rowwise_128x16x32x128_16x16_1x1_8x16x1_8x16x1_1x16x1x8_4x4x1_1x1_interwave_v2"
LARGE = "fp8_rowwise_256x256x256x128_16x16_8x8_8x32x1_8x32x1_1x32x1x8_8x8x1_1x2_intrawave_v3"
SHUFFLED = "fp8_rowwise_preshuffle_256x16x64x256_16x16_1x1_16x16x1_16x16x1_1x16x1x16_4x4x1_1x1_intrawave_v1_8"
GROUPED = "fp8_rowwise_grouped_128x16x128x128_16x16_1x4_8x16x1_8x16x1_1x16x1x8_4x4x1_1x1_interwave_v2"
ROWS: list[dict[str, Any]] = [
    {"op": "fp8_rowwise", "m": 16, "n": 1280, "k": 8192, "kernel": LARGE, "last": "2024-08-06"},
    {"op": "fp8_rowwise", "m": 16, "n": 1280, "k": 8192, "kernel": SMALL, "last": "2025-08-26"},
    {"op": "fp8_rowwise", "m": 8192, "n": 5120, "k": 1024, "kernel": LARGE, "last": "2025-08-26"},
    {"op": "fp8_rowwise_preshuffle", "m": 16, "n": 7168, "k": 8192, "kernel": SHUFFLED, "last": "2025-09-16"},
    {"op": "fp8_rowwise_grouped", "groups": 16, "m": 64, "n": 5120, "k": 1024, "kernel": GROUPED, "last": "2025-10-08"},
    {"op": "fp4_rowwise", "m": 16, "n": 5120, "k": 1024, "kernel": "fp4_rowwise_x", "last": "2025-10-08"},
]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a collected dispatch of FBGEMM."""
    frame = pd.DataFrame([{"table": "shape", "repo": "pytorch/FBGEMM", **row} for row in rows])
    frame.astype({"groups": "Int64"} if "groups" in frame else {}).to_parquet(path)
    return path


def converted(folder: Path, rows: list[dict[str, Any]]) -> Dataset:
    """Return the dataset of some rows."""
    path = written(folder / "fbgemm.parquet", rows)
    convert(path, folder / "out.parquet", ReadOptions())
    return read_dataset(folder / "out.parquet")


def test_names_have_tile_waves_and_split() -> None:
    """Tile, instruction, waves and pipeline are where AITER has them; the last number is parts of K, not a splitK."""
    small, shuffled = parse_kernel(SMALL), parse_kernel(SHUFFLED)
    assert (small.library, small.family, small.block) == ("fbgemm", "a8w8", 128)
    assert (small.tile_m, small.tile_n, small.tile_k, small.mfma_m) == (16, 32, 128, 16)
    assert (small.wave_m, small.wave_n, small.interwave, small.version, small.split_k) == (1, 2, 1, 2, 0)
    assert (shuffled.family, shuffled.split_k, shuffled.name) == ("a8w8_bpreshuffle", 3, SHUFFLED)
    assert small.pipeline == "fbgemm_interwave_v2"
    of_aiter = "a8w8_rowwise" + SMALL.removeprefix("fp8_rowwise")
    assert parse_kernel(of_aiter).library == "ck"
    for wrong in (f"{of_aiter}_8", f"{SMALL}_splitk2", f"{SMALL}_16", SMALL.replace("fp8", "bf16")):
        with expect_refusal(DataError, "bad-kernel"):
            parse_kernel(wrong)


@pytest.mark.parametrize(
    ("family", "count", "splits"),
    [
        ("a8w8", 73, {0, 1, 2, 3}),
        ("a8w8_bpreshuffle", 11, {0, 1, 2, 3}),
        ("a8w8_batched", 23, {0}),
        ("a8w8_grouped", 64, {0}),
        ("a16w16_grouped", 40, {0}),
    ],
)
def test_the_pool_has_the_kernels_of_the_dispatch(family: str, count: int, splits: set[int]) -> None:
    """Every kernel occurs once, only on gfx942."""
    pool = kernel_pool(family, "fbgemm", "gfx942")
    assert (len(pool), len({kernel.name for kernel in pool})) == (count, count)
    assert {kernel.split_k for kernel in pool} == splits
    assert kernel_pool(family, "fbgemm", "gfx950") == ()


def test_problems_are_of_fbgemms_families() -> None:
    """Canonical texts survive the round trip; FBGEMM's kernels have no other family or element type."""
    problem = AiterGemm(16, 1280, 8192, library="fbgemm", num_cus=304)
    assert parse_aiter_gemm(problem.canonical()) == problem
    for family, dtype in (("a8w8", "int8"), ("a8w8_blockscale", "fp8"), ("a4w4_blockscale", "pk_fp4")):
        with expect_refusal(UsageError, "unsupported", family, dtype):
            AiterGemm(16, 1280, 8192, family, dtype, "fbgemm")


def test_batched_and_grouped_problems_have_groups() -> None:
    """Groups are part of the text; M is of each batched product, and the sum of grouped ones."""
    batched = AiterGemm(16, 8192, 5120, "a8w8_batched", "fp8", "fbgemm", 304, 2)
    grouped = AiterGemm(64, 5120, 1024, "a16w16_grouped", "bf16", "fbgemm", 304, 16)
    assert grouped.canonical() == "aiter_gemm_a16w16_grouped_fbgemm_bf16_cu304_g16_m64_n5120_k1024"
    assert [parse_aiter_gemm(aiter_gemm.canonical()) for aiter_gemm in (batched, grouped)] == [batched, grouped]
    assert (batched.flops, grouped.flops) == (2 * 2 * 16 * 8192 * 5120, 2 * 64 * 5120 * 1024)
    assert batched.bytes == 2 * (16 * 5120 + 8192 * 5120) + 2 * 2 * 16 * 8192
    assert grouped.bytes == 2 * (64 * 1024 + 16 * 5120 * 1024) + 2 * 64 * 5120
    with expect_refusal(UsageError, "missing-field"):
        replace(batched, groups=0)
    with expect_refusal(UsageError, "bad-number"):
        AiterGemm(16, 1280, 8192, "a8w8", "fp8", "fbgemm", groups=2)
    with expect_refusal(UsageError, "unsupported"):
        replace(batched, library="ck")
    with expect_refusal(UsageError, "unsupported", "a8w8_batched"):
        KIND.numbers(batched)


def test_features_count_the_tiles_of_all_products() -> None:
    """Tiles are those of each product times their number; a grouped product has the mean of the rows."""
    kernel = parse_kernel(SMALL)  # tile 16 x 32
    problems = [
        AiterGemm(40, 1280, 8192, "a8w8", "fp8", "fbgemm", 304),
        AiterGemm(40, 1280, 8192, "a8w8_batched", "fp8", "fbgemm", 304, 3),
        AiterGemm(40, 1280, 8192, "a8w8_grouped", "fp8", "fbgemm", 304, 4),
    ]
    op, names = operation("aiter_gemm"), ("log2_tiles", "fill_m", "m_by_tile", "log2_products")
    columns = {**op.problems.features(problems), **op.kernels.features([kernel], Encoding.on("gfx942"))}
    result = op.training.engine.matrix(columns, {}, names)
    tiles = [3 * 40, 3 * 3 * 40, 4 * 1 * 40]
    expected = zip(np.log2(tiles), (40 / 48, 40 / 48, 10 / 16), (2.5, 2.5, 10 / 16), np.log2([1, 3, 4]), strict=True)
    assert result.tolist() == [pytest.approx(row) for row in expected]


def test_winners_are_read_without_times(tmp_path: Path) -> None:
    """The last kernel of a shape is used; rows have their own status and no time; unknown kinds are skipped."""
    path = written(tmp_path / "fbgemm.parquet", ROWS)
    assert convert(path, tmp_path / "out.parquet", ReadOptions()) == {OTHER_KIND: 1, REPLACED: 1}
    dataset = read_dataset(tmp_path / "out.parquet")
    frame = dataset.frame
    assert frame["status"].tolist() == ["chosen"] * 4
    assert frame["kernel"].tolist() == [SMALL, LARGE, SHUFFLED, GROUPED]
    assert [problem.groups for problem in dataset.problems()] == [0, 0, 0, 16]
    assert frame["latency_ms"].isna().all()
    assert not frame["is_valid"].any()
    assert len(dataset.valid()) == 0
    assert len(dataset.winners()) == 4
    assert set(frame["num_cus"]) == {304}
    assert winner_rows(dataset).tolist() == [0, 1, 2, 3]


def test_winners_are_ranked_against_all_other_kernels(tmp_path: Path) -> None:
    """For each problem the named kernel has efficiency 1, every other candidate 0."""
    dataset = converted(tmp_path, ROWS)
    rows = with_rivals(dataset.winners(), seed=1)
    efficiency = efficiency_of(rows)
    named = dict(zip(dataset.problem_ids.tolist(), dataset.frame["kernel"].tolist(), strict=True))
    for problem, kernel in named.items():
        inside = rows.problem_ids == problem
        assert rows.frame["kernel"][inside & (efficiency == 1)].tolist() == [kernel]
        assert set(efficiency[inside]) == {0.0, 1.0}


@pytest.mark.slow
def test_winners_without_times_are_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    """One model answers fp8 and bf16; each winner is a candidate among the kernels of FBGEMM."""
    data = Path(__file__).parents[3] / "data" / "fbgemm-gemm-gfx942.parquet"
    assert run(["evaluate", "--data", str(data), "--with-trained", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["model"]["problems"], document["coverage"]) == (453, 1.0)


def test_data_without_times_need_the_winner_objective(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A regression of times has no usable row."""
    converted(tmp_path, ROWS)
    capsys.readouterr()
    call = ["train", "--data", str(tmp_path / "out.parquet"), "--out", str(tmp_path / "model")]
    assert run([*call, "--labels", "measured", "--rank", "efficiency"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "not-measured")


@pytest.mark.parametrize("change", [{"kernel": "fp8_rowwise_x"}, {"m": 0}, {"kernel": f"{SMALL}_16"}])
def test_bad_rows_are_counted(change: dict[str, Any], tmp_path: Path) -> None:
    """A row with an impossible size or kernel is left out."""
    path = written(tmp_path / "fbgemm.parquet", [*ROWS, {**ROWS[2], **change}])
    assert convert(path, tmp_path / "out.parquet", ReadOptions())[BAD_ROW] == 1
    assert len(read_dataset(tmp_path / "out.parquet")) == 4


def test_other_gpus_and_aiter_lack_these_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows are of gfx942; AITER's tables name no kernel of FBGEMM."""
    path = written(tmp_path / "fbgemm.parquet", ROWS)
    with expect_refusal(DataError, "empty", "gfx942"):
        convert(path, tmp_path / "out.parquet", ReadOptions(arch="gfx950"))
    list_of = tmp_path / "list.txt"
    list_of.write_text(AiterGemm(16, 1280, 8192, library="fbgemm", num_cus=304).canonical() + "\n")
    call = ["export", "--to", "aiter", "--op", "aiter_gemm", "--arch", "gfx942", "--problems", str(list_of)]
    assert run([*call, "--out", str(tmp_path / "tables")]) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "no-kernel", "FBGEMM")
