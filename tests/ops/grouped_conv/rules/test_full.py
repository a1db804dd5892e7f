"""The full set: its size compared with AMD's, its parts with independent counts, its kernels with AMD's formulas."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.errors import DataError
from ckh.kernels.pipelines import blocks_per_cu
from ckh.ops.grouped_conv.kernels.variants import read_columns, triple
from ckh.ops.grouped_conv.rules import full
from ckh.ops.grouped_conv.rules.full import (
    curated_tiles,
    full_candidates,
    specializations,
    wave_and_shape,
)
from ckh.problems import Direction
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

HALF, FP32 = ("fp16", "bf16"), ("fp32",)

# Counted in AMD's rules: (direction, dtypes) -> kernels in 2D and in 3D, without depthwise ones.
AMD_COUNTS = {
    (Direction.FORWARD, HALF): (659, 649),
    (Direction.FORWARD, FP32): (320, 320),
    (Direction.BWD_DATA, HALF): (124, 104),
    (Direction.BWD_DATA, FP32): (84, 84),
    (Direction.BWD_WEIGHT, HALF): (2404, 2392),
    (Direction.BWD_WEIGHT, FP32): (258, 258),
}


def candidates(variant: Direction, dtype: str, ndim: int = 2, arch: str = "gfx942") -> tuple[ConvKernel, ...]:
    return full_candidates(variant, ndim, dtype, load_arch(arch))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_sizes_match_amd(arch: str) -> None:
    """Every direction, dtype and number of dimensions has as many combinations as in AMD's rules, 13,988 in all."""
    total = 0
    for (variant, dtypes), counts in AMD_COUNTS.items():
        for dtype in dtypes:
            sizes = tuple(len(candidates(variant, dtype, ndim, arch)) for ndim in (2, 3))
            assert sizes == counts, (variant, dtype)
            total += sum(sizes)
    assert total == 13_988


@pytest.mark.parametrize(
    ("variant", "half_2d", "half_3d", "fp32", "unique"),
    [
        (Direction.FORWARD, 38, 34, 27, 48),
        (Direction.BWD_DATA, 20, 16, 14, 20),
        (Direction.BWD_WEIGHT, 29, 26, 16, 39),
    ],
)
def test_number_of_curated_tiles(variant: Direction, half_2d: int, half_3d: int, fp32: int, unique: int) -> None:
    """The tables have as many tiles as AMD's, each once and complete where it is used."""
    rows = curated_tiles(variant)
    assert len({row.tile for row in rows}) == len(rows) == unique
    for dtype, ndim, count in (("bf16", 2, half_2d), ("fp16", 3, half_3d), ("fp32", 2, fp32), ("fp32", 3, fp32)):
        used = [row for row in rows if row.is_for(ndim, dtype)]
        assert len(used) == count
        assert all(row.waves and row.vectors(dtype) and row.pipes(dtype) for row in used)


@pytest.mark.parametrize(
    ("variant", "dtype", "options", "count"),
    [
        (Direction.FORWARD, "fp16", {"split_image": True}, 57),
        (Direction.FORWARD, "fp32", {"split_image": True}, 35),
        (Direction.FORWARD, "fp16", {"num_groups_to_merge": 32}, 4),
        (Direction.BWD_DATA, "bf16", {"num_groups_to_merge": 32}, 4),
        (Direction.BWD_WEIGHT, "fp32", {"streamk": "tree"}, 192),
        (Direction.BWD_WEIGHT, "fp32", {"streamk": "tree", "streamk_persistent": True}, 96),
        (Direction.BWD_WEIGHT, "fp32", {"two_stage": True}, 0),
        (Direction.BWD_WEIGHT, "fp32", {"explicit_gemm": True}, 0),
        # 16x256x32: one vector; 32x128x32: three of them in two arrangements; 128x32x32: four in two; two
        # specializations, and three pipelines but for the first, which has one.
        (Direction.BWD_WEIGHT, "bf16", {"num_groups_to_merge": 8}, 2 * (1 + 3 * 3 * 2 + 3 * 4 * 2)),
    ],
)
def test_kernels_with_an_option(variant: Direction, dtype: str, options: dict[str, object], count: int) -> None:
    """An option is tried only on its tiles, with as many combinations as their tables give."""
    kernels = [k for k in candidates(variant, dtype) if all(getattr(k, name) == v for name, v in options.items())]
    assert len(kernels) == count


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("variant", list(Direction))
def test_depth_of_the_instruction_follows_amds_formula(variant: Direction, dtype: str) -> None:
    """Warp tile K follows AMD's formula, restated here, on gfx950, which has all of its values."""
    legacy_wavelet = {(64, 32, 64), (64, 64, 64)}
    for kernel in candidates(variant, dtype, 2, "gfx950"):
        is_large, tile_k = kernel.warp_tile_m == 32, kernel.tile_k
        is_wavelet = variant is Direction.BWD_WEIGHT and kernel.pipeline == "wavelet"
        if kernel.streamk or (is_wavelet and kernel.tile in legacy_wavelet):
            expected = min(8 if is_large else 16, tile_k if dtype == "fp16" else tile_k // 4)
        else:
            mfma = (16 if is_large else 32) if dtype == "fp16" else (2 if is_large else 4)
            expected = min(max(4 if tile_k <= 16 else 8, mfma), tile_k)
        assert kernel.warp_tile_k == expected


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("variant", list(Direction))
def test_every_thread_loads_whole_vectors(variant: Direction, arch: str) -> None:
    """A and B are divided evenly over the block's 64 lanes per wave, at most 32 bytes per vector."""
    for dtype, size in (("fp16", 2), ("fp32", 4)):
        for kernel in candidates(variant, dtype, 2, arch):
            threads = 64 * prod(kernel.wave)
            for tile, width in ((kernel.tile_m, kernel.vector_a), (kernel.tile_n, kernel.vector_b)):
                each, rest = divmod(tile * kernel.tile_k, threads)
                assert width is not None
                assert rest == 0
                assert max(each, width) % min(each, width) == 0
                assert width * size <= 32


def test_waves_of_an_architecture_without_the_curated_ones() -> None:
    """RDNA has none of the arrangements in the tables, so that its own ones that divide the tile are used."""
    row = next(row for row in curated_tiles(Direction.FORWARD) if row.tile == (128, 128, 32))
    rdna = wave_and_shape(Direction.FORWARD, row.tile, row.waves, "fp16", load_arch("gfx1100"))
    assert set(rdna) == {((2, 4, 1), 16), ((1, 8, 1), 16), ((8, 1, 1), 16), ((4, 2, 1), 16)}
    cdna = wave_and_shape(Direction.FORWARD, row.tile, row.waves, "fp16", load_arch("gfx942"))
    assert cdna == (((1, 2, 1), 32), ((2, 2, 1), 32))


def test_the_host_has_kernels_with_its_shallowest_instruction() -> None:
    """The host's register blocks start at K = 16, deeper than any fp32 matrix instruction of the tables."""
    kernels = candidates(Direction.FORWARD, "fp32", 2, "host")
    assert len(kernels) > 300
    assert {kernel.warp_tile_k for kernel in kernels} == {16}


@pytest.mark.parametrize(
    ("tile", "count"), [((64, 64, 8), 1), ((64, 64, 16), 4), ((64, 64, 32), 4), ((64, 128, 32), 3), ((16, 256, 64), 4)]
)
def test_specializations_of_forward(tile: tuple[int, int, int], count: int) -> None:
    """Shallow tiles have the default only; only tiles of at most 4,096 outputs are tried on 3x3 filters."""
    assert len(specializations(Direction.FORWARD, tile)) == count
    assert specializations(Direction.BWD_DATA, tile) == ("default", "filter1x1_stride1_pad0")


def test_double_buffers_and_blocks_follow_from_the_pipeline() -> None:
    """Only compv4 is double-buffered, and has one block per CU instead of two."""
    for kernel in candidates(Direction.FORWARD, "bf16"):
        assert kernel.double_smem_buffer is (kernel.pipeline == "compv4")
        assert kernel.block_per_cu == (1 if kernel.pipeline == "compv4" else 2)
    assert [blocks_per_cu(name) for name in ("comp_async", "wavelet", "mem")] == [1, 2, 2]


def test_explicit_gemm_never_calls_a_wavelet() -> None:
    """Wavelet kernels have no entry point for it."""
    explicit = {k.pipeline for k in candidates(Direction.BWD_WEIGHT, "fp16") if k.explicit_gemm}
    assert explicit == {"basic_v1", "mem", "compv3", "compv4", "compv6", "basic_async_v1"}


def test_unknown_combinations_have_no_kernels() -> None:
    """There are no tables for fp8 or one dimension."""
    assert candidates(Direction.FORWARD, "fp8") == ()
    assert candidates(Direction.FORWARD, "fp16", 1) == ()


def test_tables_are_read_strictly() -> None:
    """A line with a missing column is named, and a triple is three integers."""
    with expect_refusal(DataError, "bad-row", "forward.txt:4", 7, 8):
        read_columns(Path(full.__file__).with_name("forward.txt"), 8)
    assert triple("8/4/2", "/") == triple("8x4x2") == (8, 4, 2)
