"""Features of grouped convolutions compared with AMD's engine and with numbers computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from ckh.errors import DataError, ModelError
from ckh.ops.grouped_conv.features import CORE_NAMES, GROUPED_CONV, NAMES_83, NAMES_91
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from ckh.ops.grouped_conv.operation import kernel_columns, problem_columns
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.shared import REFERENCE_HARDWARE, SHARED

if TYPE_CHECKING:
    from collections.abc import Mapping

GOLDEN = SHARED / "golden" / "grouped_conv_features.parquet"

PROBLEM = ConvProblem(Direction.BWD_DATA, n=2, c=12, k=24, g=4, hi=9, wi=7, y=3, x=1, stride_h=2, pad_h=1)
KERNEL = parse_kernel_name("grouped_conv_bwd_data_fp32_2d_16x64x128_mem_interwave_dsb")


def _one(
    names: list[str], problem: ConvProblem = PROBLEM, hardware: Mapping[str, int] = REFERENCE_HARDWARE
) -> list[float]:
    columns = {**problem_columns([problem]), **kernel_columns([KERNEL])}
    return [float(v) for v in GROUPED_CONV.matrix(columns, hardware, names)[0]]


@pytest.mark.skipif(not GOLDEN.exists(), reason="the reference vectors are not beside this checkout")
def test_the_97_equal_amds_engine_bit_for_bit() -> None:
    """All 97 features of 400 problem-kernel pairs equal what AMD's engine computed, in its order."""
    golden = pd.read_parquet(GOLDEN)
    raw = {name: golden[name].to_numpy() for name in golden.columns if not name.startswith("f_")}
    expected = golden[[name for name in golden.columns if name.startswith("f_")]]
    assert tuple(name.removeprefix("f_") for name in expected.columns) == CORE_NAMES
    np.testing.assert_array_equal(GROUPED_CONV.matrix(raw, REFERENCE_HARDWARE, CORE_NAMES), expected.to_numpy())


def test_values_computed_by_hand() -> None:
    """Sizes, utilization and ratios of one pair, computed by hand."""
    # Ho = (9 + 2 - 3) // 2 + 1 = 5, Wo = 7; forward GEMM: M = 2*35 = 70, N = 24, K = 3 channels * 3 taps = 9.
    names = ["Ho", "Wo", "gemm_m_output", "gemm_n_output", "gemm_k_output", "num_tiles_m", "num_tiles_n", "num_tiles_k"]
    assert _one(names) == [5, 7, 70, 24, 9, 5, 1, 1]
    # Last tiles: 70 mod 16 = 6 of 16; 24 of 64; 9 of 128.
    assert _one(["tile_eff_m", "tile_eff_n", "tile_eff_k"]) == [6 / 16, 24 / 64, 9 / 128]
    # fp32: (16 + 64) * 128 * 4 bytes; AMD's numbers for tile_k are called block_size.
    assert _one(["lds_usage_estimate", "lds_usage_ratio", "num_warps"]) == [40960, 40960 / 65536, 32]
    flops = 2 * 24 * 35 * 3 * 3 * 2
    moved = (2 * 12 * 63 + 24 * 3 * 3 + 2 * 24 * 35) * 4
    assert _one(["arithmetic_intensity"]) == [flops / moved]
    assert _one(["pipeline", "is_mem", "is_basic", "is_intrawave", "has_dsb", "has_si"]) == [3, 1, 0, 0, 1, 0]


def test_our_gemm_sizes_follow_the_direction() -> None:
    """The additional features use the implicit GEMM of one group in the problem's direction, as ConvProblem does."""
    names = [f"log2_group_gemm_{side}" for side in "mnk"]
    for direction in Direction:
        problem = PROBLEM.replaced(variant=direction)
        np.testing.assert_allclose(_one(names, problem), np.log2(problem.gemm_sizes), rtol=1e-15)
    # bwd_data: M = 2*63 = 126 in tiles of 16, N = 3 in tiles of 64, K = 6 channels * 3 taps = 18 in tiles of 128.
    assert _one([f"group_tiles_{side}" for side in "mnk"]) == [8, 1, 1]
    assert _one(["average_fill_m", "average_fill_n"]) == [126 / 128, 3 / 64]
    assert _one(["kernel_variant", "tile_shape"]) == [27, 6]


def test_hardware_affects_only_its_features() -> None:
    """Compute units and LDS affect exactly the features that the reference engine lists."""
    names = list(CORE_NAMES)
    base = _one(names)

    def changed(**hardware: int) -> set[str]:
        now = _one(names, hardware=REFERENCE_HARDWARE | hardware)
        return {name for name, old, new in zip(names, base, now, strict=True) if old != new}

    assert changed(num_cus=104) == {"cu_utilization", "hw_num_cus", "hw_total_simds"}
    assert changed(lds_capacity=163840) == {"lds_usage_ratio", "hw_lds_capacity"}
    assert changed(l2_cache_kb=1) == {"hw_l2_cache_kb"}


def test_older_schemas_are_subsets() -> None:
    """AMD's schemas of 83 and 91 features consist of the same declarations."""
    assert (len(NAMES_83), len(NAMES_91), len(CORE_NAMES)) == (83, 91, 97)
    assert set(NAMES_83) < set(NAMES_91) < set(CORE_NAMES)
    assert len(GROUPED_CONV.select(NAMES_83)) == 83


def test_legacy_tiles_have_amds_training_names() -> None:
    """In AMD's models a kernel 16x64x128 has block_size 16, gemm_m 64, gemm_n 128; in ckh's the correct meaning."""
    names = ("block_size", "gemm_m_per_block", "gemm_n_per_block")
    assert [float(kernel_columns([KERNEL])[n][0]) for n in names] == [128, 16, 64]
    assert [float(kernel_columns([KERNEL], legacy_tiles=True)[n][0]) for n in names] == [16, 64, 128]


def test_missing_columns_and_unknown_names_are_named() -> None:
    """A missing column and an unknown feature are errors that name it."""
    columns: dict[str, Any] = {**problem_columns([PROBLEM]), **kernel_columns([KERNEL])}
    del columns["stride_h"]
    with pytest.raises(DataError, match="stride_h"):
        GROUPED_CONV.matrix(columns, REFERENCE_HARDWARE)
    with pytest.raises(ModelError, match="K_per_C"):
        GROUPED_CONV.select(["N", "K_per_C"])
