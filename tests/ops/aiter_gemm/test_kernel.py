"""Names of AITER's kernels, and pools of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from ckh.archs import load_arch
from ckh.errors import DataError
from ckh.ops.aiter_gemm import library_of
from ckh.ops.aiter_gemm.kernel import AiterKernel, candidates, kernel_numbers, kernel_pool, parse_kernel, resolved
from ckh.ops.aiter_gemm.operation import AITER_GEMM, OPERATION
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.base import Encoding
from tests.refusals import expect_reasons
from tests.shared import DATA

if TYPE_CHECKING:
    from pathlib import Path

LISTED = DATA / "new" / "aiter_gemm_candidates.parquet"
CK = "a8w8_bpreshuffle_128x16x32x512_16x16_16x16_32x4x1_32x4x1_1x16x1x8_4x4x1_1x1_intrawave_v1"
CKTILE = "a8w8_blockscale_cktile_192x256x128_4x2x1_16x16x128_intrawave_0x1x0_3_aqrm"


def test_a_name_has_tile_waves_and_pipeline() -> None:
    """Parsed by hand for one name of each library; the split of K follows AITER's name."""
    kernel = parse_kernel(CK + "_splitk2")
    assert kernel == AiterKernel(
        *(CK, 2, "ck", "a8w8_bpreshuffle", 128, 16, 32, 512, 16, 16, 1, 2, 16, 32, 32, 8, 4, 1, 1, 0, 1)
    )
    assert (kernel.name, kernel.pipeline) == (CK + "_splitk2", "intrawave_v1")
    tile = parse_kernel(CKTILE)
    assert (tile.tile_m, tile.tile_n, tile.tile_k, tile.wave_m, tile.wave_n) == (192, 256, 128, 4, 2)
    assert (tile.block, tile.per_cu, tile.pipeline, tile.name) == (512, 3, "cktile", CKTILE)


# Name -> library, family, block, tile, waves along M and N, asynchronous copies, LDS stages, waves of a SIMD.
OTHERS = {
    "_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_64x1024E": "asm a4w4_blockscale 256 64x1024x128 1x4 0 0 0",
    "_ZN5aiter42fp8gemm_bf16_blockscale_BpreShuffle_96x128E": (
        "asm a8w8_blockscale_bpreshuffle 256 96x128x128 1x4 0 0 0"
    ),
    "flydsl_bpreshuflle_32x64x512_F8_F8_B16_2x1x0x3x4_default": "flydsl a8w8_bpreshuffle 256 32x64x512 1x4 0 2 3",
    "flydsl_bpreshuflle_256x128x128_F8_F8_B16_2x0x1x2_default": "flydsl a8w8_bpreshuffle 256 256x128x128 1x4 1 2 2",
    "flydsl_bpreshuflle_128x256x128_F8_F8_B16_1x2x4x2_default": "flydsl a8w8_bpreshuffle 256 128x256x128 1x4 1 2 2",
    "opus_gemm_gfx942_a8w8_bs_bpreshuf_sb_tailm_v16_512x128x128x128_4x2_16x16x32_1x128x128": (
        "opus a8w8_blockscale_bpreshuffle 512 128x128x128 4x2 0 0 0"
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_other_libraries(name: str) -> None:
    """Read by hand: FlyDSL's four or five options are in another order in its versions of 2026."""
    k = parse_kernel(name)
    tile, waves = f"{k.tile_m}x{k.tile_n}x{k.tile_k}", f"{k.wave_m}x{k.wave_n}"
    assert f"{k.library} {k.family} {k.block} {tile} {waves} {k.interwave} {k.version} {k.per_cu}" == OTHERS[name]
    assert (k.name, k.pipeline, library_of(name)) == (name, k.library, k.library)


def test_asm_splits_k_into_a_number_of_parts() -> None:
    """1 to 8, and not powers of two; the inputs of models are of as many workgroups."""
    pool = kernel_pool("a8w8_blockscale_bpreshuffle", "asm", "gfx950")
    assert {kernel.parts for kernel in pool} == {kernel.split_k for kernel in pool} == set(range(1, 9))
    problem = AiterGemm(16, 1024, 7168, "a8w8_blockscale_bpreshuffle", num_cus=256)
    columns = {**OPERATION.kernels.features(pool, Encoding.on("gfx950"))}
    columns |= {name: np.repeat(values, len(pool)) for name, values in OPERATION.problems.features([problem]).items()}
    workgroups = 2 ** AITER_GEMM.matrix(columns, {}, ["log2_workgroups"])[:, 0]
    assert workgroups == pytest.approx([8 * kernel.split_k for kernel in pool])  # of N / 128


def test_sizes_that_others_never_won_with_are_refused() -> None:
    """N = 2,112 is no multiple of ASM's 128 columns, 576 not of FlyDSL's 128 or 256."""
    gpu = load_arch("gfx950")
    for n, family, library, steps in (
        (2112, "a8w8_blockscale_bpreshuffle", "asm", set()),
        (2176, "a8w8_blockscale_bpreshuffle", "asm", {128}),
        (576, "a8w8_bpreshuffle", "flydsl", {64, 192}),
        (768, "a8w8_bpreshuffle", "flydsl", {64, 128, 192, 256}),
    ):
        found = candidates(AiterGemm(16, n, 7168, family, library=library, num_cus=256), gpu)
        assert {kernel.tile_n for kernel in found.kernels} == steps
        assert len(found.kernels) + sum(found.refused.values()) == len(found.pool)
    own = AiterGemm(16, 2112, 7168, "a8w8_blockscale_bpreshuffle", library="ck_cktile", num_cus=256)
    assert len(candidates(own, gpu).kernels) == 18 + 32


@pytest.mark.parametrize(
    "name", ["", "gemm", CK + "_splitk0", CK + "_splitk99", CK[:-1], CK + "x", "_ZN5aiter41f4gemm"]
)
def test_invalid_names_are_refused(name: str) -> None:
    """Incomplete names and other texts are refused."""
    with pytest.raises(DataError):
        parse_kernel(name)


def test_names_are_parsed_like_by_amd() -> None:
    """All 1,169 candidates of AITER's tuners equal AMD's parsing, column by column, and are exactly the pools."""
    pandas = pytest.importorskip("pandas")
    if not LISTED.exists():
        pytest.skip(f"{LISTED} is not there")
    frame = pandas.read_parquet(LISTED)
    renamed = {"warp_m": "wave_m", "warp_n": "wave_n", "block_per_cu": "per_cu"}
    same = ("block", "tile_m", "tile_n", "tile_k", "mfma_m", "mfma_n", "interwave", "version", *renamed)
    of_ck = {"a_k1": "a_k1", "a_k0": "a_k0", "b_k0": "b_k0", "c_n": "c_n", "c_spv": "c_store"}
    for row in frame.to_dict("records"):
        kernel = parse_kernel(row["kernel"])
        assert kernel.library == row["kind"]
        for column, field in {name: renamed.get(name, name) for name in same}.items():
            assert getattr(kernel, field) == row[column], (row["kernel"], field)
        for column, field in of_ck.items() if row["kind"] == "ck" else ():
            assert getattr(kernel, field) == row[column], (row["kernel"], field)
    for (pool, arch), part in frame.groupby(["pool", "gfx"]):
        if (pool, arch) == ("a4w4_blockscale", "gfx942"):
            continue  # AITER's lists do not distinguish architectures here, and gfx942 has no fp4
        family, library = str(pool).removesuffix("_cktile"), "cktile" if str(pool).endswith("cktile") else "ck"
        assert {kernel.base for kernel in kernel_pool(family, library, str(arch))} == set(part["kernel"])


def test_kernels_differ_in_features() -> None:
    """No two kernels of a pool have the same features, so that a model can distinguish them."""
    pool = kernel_pool("a8w8_bpreshuffle", "cktile", "gfx942")
    assert len({repr(kernel).replace(kernel.base, "") for kernel in pool}) == len(pool) > 200


def test_older_names_map_to_current_names() -> None:
    """A renamed family, and a pair of numbers that older names omit."""
    new = "a8w8_blockscale_1x128x128_256x16x64x256_16x16_16x16_1x1_16x16x1_16x16x1_1x16x1x16_4_1x1_intrawave_v1"
    assert resolved(new.replace("_1x1_16x16x1_16x16x1", "_16x16x1_16x16x1")) == new
    shuffled = (
        "a8w8_blockscale_bpreshuffle_1x128x128_256x64x64x128_16x16_16x16_8x32x1_8x32x1_1x32x1x8_8_2x1_intrawave_v3"
    )
    assert resolved(shuffled.replace("bpreshuffle", "wpreshuffle")) == shuffled
    assert resolved("somebody_elses") == "somebody_elses"


def test_a_device_without_kernels_is_refused() -> None:
    """AITER has no CK Tile kernels of a8w8: there are no candidates, with the reason."""
    result = candidates(AiterGemm(1, 64, 64, library="cktile", num_cus=256), load_arch("gfx950"))
    assert len(result.kernels) == 0
    expect_reasons(result.refused, ("a8w8", "cktile", "gfx950"))
    assert list(result.refused.values()) == [1]
    assert not candidates(AiterGemm(1, 64, 64, "a4w4_blockscale", "pk_fp4"), load_arch("gfx942")).kernels
    whole = candidates(AiterGemm(1, 64, 64, num_cus=256), load_arch("gfx950"))
    assert len(whole.kernels) == 83 * 4
    assert whole.refused == {}


@pytest.mark.parametrize(("k", "splits"), [(128, set()), (384, set()), (256, {0}), (768, {0}), (512, {0, 1})])
def test_packed_pairs_count_twice(k: int, splits: set[int]) -> None:
    """CK's MXFP4 kernels are built without padding: each part of K is a multiple of the 256 values of a tile."""
    result = candidates(AiterGemm(16, 4096, k, "a4w4_blockscale", "pk_fp4", num_cus=256), load_arch("gfx950"))
    assert {kernel.split_k for kernel in result.kernels} == splits
    of_asm = 24 if splits else 0  # no such K won with these
    assert len(result.kernels) == 20 * len(splits) + of_asm
    assert sum(result.by_problem.values()) == 20 * (2 - len(splits)) + 24 - of_asm
    others = candidates(AiterGemm(16, 4096, k, "a8w8_blockscale", "fp8", num_cus=256), load_arch("gfx950"))
    assert len(others.kernels) == len(others.pool)


TUNED = DATA / "new" / "aiter_gemm_tuned.parquet"


@pytest.mark.skipif(not TUNED.is_file(), reason=f"{TUNED} is absent")
def test_no_tuned_mxfp4_kernel_breaks_a_rule() -> None:
    """All 356 winners of CK's among AITER's tunings of a4w4 are candidates of their GEMMs."""
    frame = pd.read_parquet(TUNED)
    frame = frame[(frame["family"] == "a4w4_blockscale") & (frame["library"] == "ck")]
    for row in frame.to_dict("records"):
        problem = AiterGemm(row["M"], row["N"], row["K"], "a4w4_blockscale", "pk_fp4", num_cus=256)
        names = {kernel.base for kernel in candidates(problem, load_arch("gfx950")).kernels}
        assert resolved(row["kernel"]) in names, problem
    assert len(frame) == 356


NEWER = sorted(DATA.glob("aiter_*_tuned_gemm.csv"))


@pytest.mark.skipif(not NEWER, reason=f"AITER's tables of 2026 are not in {DATA}")
@pytest.mark.parametrize("path", NEWER, ids=lambda path: path.stem)
def test_newer_aiter_tables_use_the_kernel_numbers_of_the_list(path: Path) -> None:
    """In AITER's tables of August 2026 every CK kernel known to ckh has the number in the list."""
    frame = pd.read_csv(path)
    frame = frame[frame["kernelName"].map(resolved).isin(kernel_numbers().keys())]
    assert len(frame) > 100
    pairs = set(zip(frame["kernelName"].map(resolved), frame["kernelId"], strict=True))
    # AITER's list has three duplicates, and its tuner uses the later.
    differing = {(kernel_numbers()[name], number) for name, number in pairs if kernel_numbers()[name] != number}
    assert differing <= {(5, 11), (19, 25), (65, 144)}
