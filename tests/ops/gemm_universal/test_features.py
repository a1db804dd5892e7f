"""Features of GEMMs compared with AMD's engine and with numbers computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from ckh.errors import DataError, ModelError
from ckh.ops import operation
from ckh.ops.base import Encoding
from ckh.ops.gemm_universal.features import (
    GEMM_UNIVERSAL,
    INPUT_COLUMNS,
    NAMES_55,
    NAMES_72,
    from_amd,
    kernel_columns,
    problem_columns,
)
from ckh.ops.gemm_universal.kernel import parse_kernel_name
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.shared import REFERENCE_HARDWARE, SHARED

if TYPE_CHECKING:
    from collections.abc import Mapping

GOLDEN = SHARED / "golden" / "gemm_universal_features.parquet"

PROBLEM = GemmProblem(100, 300, 96, "fp16", "ccr", 2)
NAMES = [
    "gemm_universal_fp16_ccr_mem_cshuffle_interwave_False_True_False_True_64x128x64_4x2x1_16x32x16",
    "gemm_universal_fp16_ccr_compv4_default_intrawave_True_True_True_False_256x64x32_2x2x1_32x32x8",
    "gemm_universal_fp16_ccr_basic_v1_default_intrawave_False_False_False_False_32x32x32_1x1x1_32x32x8",
]
KERNELS = [parse_kernel_name(name) for name in NAMES]


def _one(
    names: list[str], kernel: int = 0, problem: GemmProblem = PROBLEM, hardware: Mapping[str, int] = REFERENCE_HARDWARE
) -> list[float]:
    columns = {**problem_columns([problem]), **kernel_columns([KERNELS[kernel]])}
    return [float(v) for v in GEMM_UNIVERSAL.matrix(columns, hardware, names)[0]]


@pytest.mark.skipif(not GOLDEN.exists(), reason="the reference vectors are not beside this checkout")
def test_the_72_equal_amds_engine_bit_for_bit() -> None:
    """All 72 features of 400 problem-kernel pairs equal what AMD's engine computed, in its order."""
    golden = pd.read_parquet(GOLDEN)
    raw = from_amd({name: golden[name].to_numpy() for name in golden.columns if not name.startswith("f_")})
    expected = golden[[name for name in golden.columns if name.startswith("f_")]]
    assert tuple(name.removeprefix("f_") for name in expected.columns) == NAMES_72
    assert set(raw) == set(INPUT_COLUMNS)
    np.testing.assert_array_equal(GEMM_UNIVERSAL.matrix(raw, REFERENCE_HARDWARE, NAMES_72), expected.to_numpy())


@pytest.mark.skipif(not GOLDEN.exists(), reason="the reference vectors are not beside this checkout")
def test_problems_and_kernels_give_the_columns_of_rows() -> None:
    """A reference row parsed as a problem and a kernel name gives the features of the row."""
    golden = pd.read_parquet(GOLDEN)
    for row in golden[golden["split_k"] <= golden["k"]].head(60).to_dict("records"):
        text = {name: str(value) for name, value in row.items()}
        flags = "_".join(text[name] for name in ("pad_m", "pad_n", "pad_k", "persistent"))
        sizes = "_".join("x".join(text[f"{what}_{axis}"] for axis in "mnk") for what in ("tile", "warp", "warp_tile"))
        traits = f"{text['pipeline']}_{text['epilogue']}_{text['scheduler']}"
        kernel = parse_kernel_name(f"gemm_universal_{text['dtype']}_{text['layout']}_{traits}_{flags}_{sizes}")
        problem = GemmProblem(row["m"], row["n"], row["k"], text["dtype"], text["layout"], row["split_k"])
        columns = {**problem_columns([problem]), **kernel_columns([kernel])}
        expected = [row[f"f_{name}"] for name in NAMES_72]
        np.testing.assert_array_equal(GEMM_UNIVERSAL.matrix(columns, REFERENCE_HARDWARE, NAMES_72)[0], expected)


def test_values_computed_by_hand() -> None:
    """Sizes, utilization, ratios and padding of one pair, computed by hand."""
    assert _one(["M", "N", "K", "split_k", "layout"]) == [100, 300, 96, 2, 3]
    assert _one(["aspect_ratio_mn", "aspect_ratio_mk", "aspect_ratio_nk"]) == [100 / 300, 100 / 96, 300 / 96]
    moved = (100 * 96 + 96 * 300 + 100 * 300) * 2
    assert _one(["arithmetic_intensity", "log2_MNK"]) == [2 * 100 * 300 * 96 / moved, np.log2(2_880_000)]
    assert _one(["warp_m", "warp_n", "warp_tile_n", "num_warps", "tile_volume"]) == [4, 2, 32, 8, 64 * 128 * 64]
    assert _one(["pipeline", "scheduler", "epilogue", "persistent"]) == [3, 1, 1, 1]
    assert _one(["lds_usage_estimate", "lds_usage_ratio"]) == [192 * 64 * 2, 192 * 64 * 2 / 65536]
    # compv4: 320 x 32 elements of 2 bytes in 32 KB.
    assert _one(["lds_usage_estimate", "lds_usage_ratio"], 1) == [20480, 20480 / 32768]
    # Last tiles: 100 mod 64 = 36, 300 mod 128 = 44, 96 mod 64 = 32.
    assert _one(["tile_eff_m", "tile_eff_n", "tile_eff_k"]) == [36 / 64, 44 / 128, 32 / 64]
    assert _one(["overall_tile_efficiency"]) == [36 / 64 * (44 / 128) * 0.5]
    assert _one(["num_tiles_m", "num_tiles_n", "num_tiles_k", "cu_utilization"]) == [2, 3, 2, 6 / 256]
    assert _one([f"needs_padding_{axis}" for axis in "mnk"]) == [1, 1, 1]
    assert _one([f"has_padding_when_needed_{axis}" for axis in "mnk"]) == [0, 1, 0]
    assert _one([f"missing_required_padding_{axis}" for axis in "mnk"]) == [1, 0, 1]
    assert _one(["missing_any_required_padding"], 1) == [0]
    assert _one([f"problem_smaller_than_tile_{axis}" for axis in "mnk"], 1) == [1, 0, 0]
    # A tile of 32 divides 96 but neither 100 nor 300.
    assert _one([f"needs_padding_{axis}" for axis in "mnk"], 2) == [1, 1, 0]
    assert _one(["tile_eff_k", "any_dim_too_small", "ratio_K_to_tile_k"], 2) == [1, 0, 3]


def test_own_features_computed_by_hand() -> None:
    """Additional features of M=100, N=300, K=96 in fp16 and ccr on a 64x128x64 tile of 4x2 waves of 16x32."""
    assert _one(["block_m", "block_n", "block_aspect", "blocks_m", "blocks_n"]) == [64, 64, 1, 1, 2]
    assert _one(["average_fill_m", "average_fill_n", "average_fill_k"]) == [100 / 128, 300 / 384, 96 / 128]
    assert _one(["block_fill_m", "block_fill_n", "block_rest_m", "block_rest_n"]) == [100 / 128, 300 / 320, 36, 44]
    assert _one(["used_m", "used_n", "used_k"]) == [64, 128, 64]
    assert _one(["used_m", "used_n", "used_k"], 1) == [100, 64, 32]
    # 100 = 4 x 25, 300 = 4 x 75, 96 = 32 x 3.
    assert _one([f"powers_of_two_{axis}" for axis in "MNK"]) == [2, 2, 5]
    assert _one([f"rest_16_{axis}" for axis in "MNK"]) == [4, 12, 0]
    # The L2 of the reference has 4 MiB, its L1 32 KiB, its L3 256 MiB.
    over_l1, over_l2 = (np.log2(np.array([8192, 16384]) / size) for size in (2**15, 2**22))
    assert _one(["log2_A_over_l2", "log2_B_over_l3"]) == [np.log2(100 * 96 * 2 / 2**22), np.log2(96 * 300 * 2 / 2**28)]
    assert _one(["log2_tile_a_over_l1", "log2_tile_c_over_l1", "log2_tile_b_over_l2"]) == [*over_l1, over_l2[1]]
    assert _one(["log2_panel_m_over_l2"]) == [np.log2(64 * 96 * 2 / 2**22)]
    assert _one(["log2_panel_n_over_l2"]) == [np.log2(128 * 96 * 2 / 2**22)]
    # A is read for each of three tiles along N, B for each of two along M.
    assert _one(["log2_read_a", "log2_read_b"]) == [np.log2(3 * 100 * 96 * 2), np.log2(2 * 96 * 300 * 2)]
    assert _one(["last_wave_fill"]) == [6 / 256]
    # mem is 3, interwave 1, cshuffle 1, persistent 1; only N is padded.
    assert _one(["code_path", "padding"]) == [3 * 8 + 4 + 2 + 1, 2]
    assert _one(["code_path", "padding"], 1) == [1 * 8, 7]


def test_unknown_values_have_amds_codes() -> None:
    """Unknown values are encoded as compv3, default and one byte per element, as in AMD's tables."""
    columns = {**problem_columns([PROBLEM]), **kernel_columns([KERNELS[0]])}
    columns |= {"pipeline": np.array(["comp_async"]), "epilogue": np.array(["tdm"]), "dtype": np.array(["fp9"])}
    names = ["pipeline", "epilogue", "lds_usage_estimate"]
    assert list(GEMM_UNIVERSAL.matrix(columns, REFERENCE_HARDWARE, names)[0]) == [0, 0, 192 * 64]


def test_hardware_affects_only_its_features() -> None:
    """Compute units, SIMDs and LDS affect exactly the features that AMD's tests list."""
    names = list(NAMES_72)
    base = _one(names)

    def changed(**hardware: int) -> set[str]:
        now = _one(names, hardware=REFERENCE_HARDWARE | hardware)
        return {name for name, old, new in zip(names, base, now, strict=True) if old != new}

    assert changed(num_cus=104) == {"cu_utilization", "hw_num_cus", "hw_total_simds"}
    assert changed(simds_per_cu=2) == {"hw_simds_per_cu", "hw_total_simds"}
    assert changed(lds_capacity=163840) == {"lds_usage_ratio", "hw_lds_capacity"}
    assert changed(l2_cache_kb=1) == {"hw_l2_cache_kb"}


def test_schema_of_55_is_a_subset_and_categories_are_amds() -> None:
    """The older schema lacks the 17 features on utilization and padding; four of AMD's features are categories."""
    assert (len(NAMES_55), len(NAMES_72), len(set(NAMES_72))) == (55, 72, 72)
    assert [name for name in NAMES_72 if name not in NAMES_55] == list(NAMES_72[43:60])
    assert len(GEMM_UNIVERSAL.select(NAMES_55)) == 55
    assert GEMM_UNIVERSAL.categorical == ("layout", "pipeline", "scheduler", "epilogue", "code_path", "padding")
    assert GEMM_UNIVERSAL.names[:72] == NAMES_72
    assert GEMM_UNIVERSAL.encodings[0] == 0


def test_mem_counts_as_padded_for_models_trained_that_way() -> None:
    """AMD's JSON converter marks every `mem` kernel as padded, unlike its name."""
    assert [kernel_columns(KERNELS)[f"pad_{axis}"].tolist() for axis in "mnk"] == [[0, 1, 0], [1, 1, 0], [0, 1, 0]]
    padded = kernel_columns(KERNELS, mem_is_padded=True)
    assert [padded[f"pad_{axis}"].tolist() for axis in "mnk"] == [[1, 1, 0]] * 3


def test_missing_columns_and_unknown_names_are_named() -> None:
    """A missing column and an unknown feature are errors that name it."""
    columns: dict[str, Any] = {**problem_columns([PROBLEM]), **kernel_columns(KERNELS)}
    with pytest.raises(DataError, match="wave_n"):
        GEMM_UNIVERSAL.matrix({n: v for n, v in columns.items() if n != "wave_n"}, REFERENCE_HARDWARE)
    with pytest.raises(ModelError, match="vec_frac_d"):
        GEMM_UNIVERSAL.select(["M", "vec_frac_d"])


def test_mem_counts_as_padded_on_a_gpu_alone() -> None:
    """Columns of datasets mark every `mem` kernel as padded on a GPU, where it runs every size; not on the host."""
    columns = operation("gemm_universal").kernels.columns
    for is_gpu, pads in ((True, [1, 1, 0]), (False, [0, 1, 0])):
        result = columns(KERNELS, Encoding(is_gpu=is_gpu))
        assert result["pad_m"] == pads
