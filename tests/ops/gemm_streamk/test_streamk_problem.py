"""Stream-K problems and kernels: identity, refusals, sets, names, pools and the estimate."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any

import pytest

from ckh.archs import load_arch
from ckh.errors import DataError
from ckh.features.engine import Columns
from ckh.learn.analytic.estimate import estimated_parts, estimated_us
from ckh.ops.base import Encoding
from ckh.ops.gemm_streamk.operation import (
    FAMILY,
    GEMM_STREAMK,
    OPERATION,
    POOLS,
    STREAMK_RULES,
    parse_streamk_kernel,
)
from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.ops.gemm_universal.kernel import parse_kernel_name

ARCH = load_arch("gfx942")
SHAPE = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
KERNEL = parse_streamk_kernel(f"gemm_streamk_atomic_1_{SHAPE}")


def test_names_state_reduction_and_blocks() -> None:
    """They are parsed again; AMD's names, which state no number of blocks, mean as many as a compute unit holds."""
    for reduction, blocks in product(("atomic", "reduction"), (0, 1, 2, 16)):
        kernel = replace(KERNEL, reduction=reduction, blocks_per_cu=blocks)
        assert parse_streamk_kernel(f"gemm_streamk_{reduction}_{blocks}_{SHAPE}") == kernel
    kind, sizes = SHAPE.split("_128x", 1)
    for amd, reduction in (("atomic", "atomic"), ("reduction", "reduction"), ("linear", "reduction")):
        gemm_stream_kkernel = parse_streamk_kernel(f"gemm_streamk_{kind}_{amd}_128x{sizes}")
        assert gemm_stream_kkernel == replace(KERNEL, reduction=reduction, blocks_per_cu=0)
    for wrong in (f"gemm_streamk_tree_1_{SHAPE}", f"gemm_streamk_{kind}_tree_128x{sizes}", f"gemm_streamk_{SHAPE}"):
        with pytest.raises(DataError):
            parse_streamk_kernel(wrong)


def test_pools_have_every_reduction_and_number_of_blocks() -> None:
    """But for the default epilogue, which cannot add pairs of bf16."""
    pool = POOLS.of(ARCH, "bf16", "rcr")
    assert {(kernel.reduction, kernel.blocks_per_cu) for kernel in pool} == {*product(("atomic", "reduction"), (1, 2))}
    shuffled = sum(kernel.epilogue == "cshuffle" for kernel in pool)
    assert shuffled == 4 * sum(k.epilogue == "default" and k.blocks_per_cu == 1 for k in pool)
    assert {kernel.epilogue for kernel in FAMILY.bench_pools.of(ARCH, "bf16", "rcr")} == {"cshuffle"}


@pytest.mark.parametrize(
    ("kernel", "problem", "word"),
    [
        ({"pad_k": True}, {"k": 4096 + 8}, "tile_k"),
        ({"reduction": "atomic", "dtype": "bf16"}, {"dtype": "bf16", "m": 200}, "tile_m"),
        ({"epilogue": "default"}, {}, "pairs"),
        ({"vector_c": 1}, {}, "pairs"),
        ({"blocks_per_cu": 17}, {}, "17"),
    ],
)
def test_kernels_that_would_be_wrong_are_refused(kernel: dict[str, Any], problem: dict[str, Any], word: str) -> None:
    """Parts of K beyond its end, bf16 added beyond C, single 16-bit elements added; each with one reason."""
    right = GemmStreamKProblem(256, 256, 4096, "fp16")
    (reason,) = STREAMK_RULES.check(replace(KERNEL, **kernel), ARCH, replace(right, **problem))
    assert word in reason
    assert STREAMK_RULES.check(KERNEL, ARCH, right) == []


def test_reductions_may_store_what_cannot_be_added() -> None:
    """A reduction in float32 stores results: ragged bf16 and single elements are fine."""
    kernel = replace(KERNEL, dtype="bf16", reduction="reduction", epilogue="default")
    assert STREAMK_RULES.check(kernel, ARCH, GemmStreamKProblem(200, 256, 4096, "bf16")) == []


def test_a_search_proposes_reductions_and_blocks() -> None:
    """The product has both for every base."""
    problem = GemmStreamKProblem(256, 256, 4096, "bf16")
    result = FAMILY.searched.product(problem, ARCH)
    rows = {row[-2:] for row in result.options.rows}
    assert rows == {*product(("atomic", "reduction"), (1, 2))}


def shared(tiles: int, steps: int, grid: int) -> tuple[int, float]:
    """Tiles that blocks share and steps of a block, counted as CK Tile's partitioner does."""
    rest = tiles % grid
    count = (grid + rest if tiles > grid else tiles) if rest else 0
    return (count, count * steps / grid) if count * steps >= grid else (0, 0.0)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("sizes", [(512, 512, 65536), (4096, 4096, 4096), (128, 128, 64), (38912, 128, 512)])
def test_features_count_shared_tiles(sizes: tuple[int, int, int], blocks: int) -> None:
    """Shared tiles and steps per block as CK Tile's partitioner counts them."""
    kernel, problem = replace(KERNEL, blocks_per_cu=blocks), GemmStreamKProblem(*sizes, "fp16")
    raw = {
        **OPERATION.problems.features([problem]),
        **OPERATION.kernels.features([kernel], Encoding(is_gpu=True)),
        **{f"hw_{name}": value for name, value in ARCH.hardware.to_dict().items()},
    }
    columns = Columns(raw, dict(GEMM_STREAMK.derived), {})
    m, n, k = (ceil(size / tile) for size, tile in zip(sizes, kernel.tile, strict=True))
    tiles, steps = shared(m * n, k, ARCH.hardware.num_cus * blocks)
    assert columns["streamk_tiles"][0] == tiles
    assert columns["streamk_steps"][0] == pytest.approx(steps)


def estimate(problem: GemmStreamKProblem, *kernels: Any) -> list[float]:
    """Estimated microseconds."""
    assert OPERATION.problems.tiled is not None
    return list(estimated_us(problem, OPERATION.problems.tiled(problem), kernels, ARCH))


def test_the_estimate_evens_tiles_out() -> None:
    """Few deep tiles are faster if shared; tiles that fill every round take as long as if each had its block."""
    plain = parse_kernel_name(f"gemm_universal_{SHAPE}")
    deep = GemmStreamKProblem(512, 512, 65536, "fp16")
    shared_us, alone_us = estimate(deep, KERNEL)[0], estimate(deep, plain)[0]
    assert shared_us < 0.2 * alone_us
    full = GemmStreamKProblem(128 * 16, 128 * 19, 4096, "fp16")
    reduced = replace(KERNEL, reduction="reduction")
    assert estimate(full, reduced)[0] == pytest.approx(estimate(full, plain)[0])


def test_the_estimate_counts_partial_sums() -> None:
    """A tile's first block loads the sums of all others in turn; additions move C twice more."""
    assert OPERATION.problems.tiled is not None
    assert ARCH.peaks is not None
    reduced = replace(KERNEL, reduction="reduction")
    deep = GemmStreamKProblem(128, 128, 2**20, "fp16")
    ends = [estimated_parts(deep, OPERATION.problems.tiled(deep), item, ARCH).ends_us for item in (KERNEL, reduced)]
    others = ARCH.hardware.num_cus - 1
    assert ends[1] - ends[0] == pytest.approx(others * 128 * 128 * 4 / 64 / ARCH.hardware.max_clock_mhz)
    wide = GemmStreamKProblem(128 * 160, 128 * 160, 64, "fp16")
    memory = estimated_parts(wide, OPERATION.problems.tiled(wide), KERNEL, ARCH).memory_us
    assert memory == pytest.approx((wide.bytes + 2 * 2 * wide.m * wide.n) / (0.8 * ARCH.peaks.bandwidth_gb_s) / 1e3)


def test_lists_of_kernels() -> None:
    """A configuration stands for as many blocks as a unit holds: others are written as a registry alone."""
    kernels = [replace(KERNEL, reduction=reduction, blocks_per_cu=0) for reduction in ("atomic", "reduction")]
    assert sorted(FAMILY.lists.write(kernels, ARCH, "own")) == ["config_fp16_rcr.json", "registry_fp16_rcr.json"]
    other = [replace(kernel, blocks_per_cu=2) for kernel in kernels]
    assert sorted(FAMILY.lists.write(other, ARCH, "own")) == ["registry_fp16_rcr.json"]
