"""Pools of GEMM kernels: sizes by architecture, and reasons for rejection."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import pytest

from ckh.archs import ArchSpec, load_arch
from ckh.ops.gemm_universal.kernels.pool import (
    AMD_SEARCH,
    BENCH_POOLS,
    GPU,
    HOST,
    GemmSpace,
    buildable,
    gemm_pool,
    space_of,
)
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.problems import DTYPE_BYTES
from tests.refusals import has_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.kernels.judging import RefusedKernel
    from ckh.ops.gemm_universal.kernel import GemmKernel

AMD_PIPELINES = ("compv3", "compv4", "compv5", "mem", "preshufflev2", "basic_v1", "compv6")


def _size(space: GemmSpace) -> int:
    return prod(len(getattr(space, field.name)) for field in fields(space))


def _refused(arch: ArchSpec, dtype: str = "fp32") -> Iterator[RefusedKernel[GemmKernel]]:
    return GEMM_RULES.refused(space_of(arch).table(dtype, "rcr"), arch)


def _counted(arch: ArchSpec, dtype: str) -> int:
    """Count a GPU's pool by loops over AMD's product without instructions of four rows, independent of the rules."""
    count = 0
    sides, waves = (32, 64, 128, 192, 256), (1, 2, 4)
    for m, n, k, wave_m, wave_n in product(sides, sides, (32, 64, 128, 256), waves, waves):
        if wave_m * wave_n not in (2, 4, 8) or (wave_m, wave_n, 1) not in arch.wave_configs:
            continue
        for a, b, c in arch.warp_tiles[f"{dtype}_{dtype}_{'int32' if dtype == 'int8' else 'fp32'}"]:
            if not {a, b} <= {16, 32, 64} or c not in (8, 16, 32, 64, 128):
                continue
            if m % (wave_m * a) or n % (wave_n * b) or k % c:
                continue
            for pipeline in AMD_PIPELINES:
                halved = pipeline in ("compv4", "compv6", "preshufflev2")
                fits = (m + n) * k * DTYPE_BYTES[dtype] <= arch.lds_capacity / (2 if halved else 1)
                if pipeline == "compv5":
                    continue  # requires two wave groups, 1x1x2, which AMD's product lacks
                schedulers = 2 if pipeline in ("mem", "basic_v1") else 1
                count += schedulers if pipeline in arch.pipelines and fits else 0
    return 8 * count  # epilogue, padding, persistence


@pytest.mark.parametrize(
    ("name", "dtype", "size"),
    [
        ("gfx90a", "bf16", 25248),
        ("gfx908", "fp32", 11848),
        ("gfx1100", "fp16", 5072),
        ("gfx1200", "fp8", 7152),
        ("gfx1201", "int8", 7152),
    ],
)
def test_pools_of_gpus_are_amds_product_filtered(name: str, dtype: str, size: int) -> None:
    """A pool has as many kernels as counted by loops over AMD's product and the architecture's limits."""
    arch = load_arch(name)
    assert len(gemm_pool(arch, dtype)) == _counted(arch, dtype) == size


@pytest.mark.parametrize(("name", "dtype", "size"), [("gfx942", "fp8", 62040), ("gfx950", "fp16", 74240)])
def test_pools_of_large_gpus(name: str, dtype: str, size: int) -> None:
    """The same for the architectures with the most kernels."""
    arch = load_arch(name)
    assert len(gemm_pool(arch, dtype)) == _counted(arch, dtype) == size


def test_the_spaces_have_the_documented_sizes() -> None:
    """AMD's product: 100 tiles, 7 arrangements of waves, 80 warp tiles, 7 pipelines, 2 x 2 x 8 x 2 options."""
    assert _size(AMD_SEARCH) == 100 * 7 * 80 * 7 * 2 * 2 * 8 * 2
    assert _size(GPU) == 100 * 7 * 45 * 7 * 2 * 2 * 2 * 2
    assert _size(HOST) == 11 * 6 * 6 * 2 * 2
    assert space_of(load_arch("host")) is HOST
    assert space_of(load_arch("gfx942")) is GPU


def test_bench_includes_persistent_kernels() -> None:
    """On a GPU half of a run's unfiltered candidates are persistent: every plain kernel has a persistent variant."""
    result = BENCH_POOLS.of(load_arch("gfx942"), "bf16", "rcr")
    persistent = {kernel for kernel in result if kernel.persistent}
    assert {replace(kernel, persistent=True) for kernel in result} == persistent
    assert len(result) == 2 * len(persistent)


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_pool_of_the_host(layout: str) -> None:
    """Some nine hundred kernels with every tile, block, pipeline, scheduler and both paddings, in each layout."""
    host = load_arch("host")
    pool = gemm_pool(host, layout=layout)
    assert len(pool) == len(set(pool)) == 932
    assert {(kernel.dtype, kernel.layout, kernel.epilogue, kernel.vectors) for kernel in pool} == {
        ("fp32", layout, "cshuffle", (0, 0, 0))
    }
    assert {kernel.tile for kernel in pool} == set(HOST.tiles)
    assert {(kernel.wave, kernel.warp_tile) for kernel in pool} == {(b.wave, b.warp_tile) for b in HOST.blocks}
    assert {kernel.pipeline for kernel in pool} == set(host.pipelines)
    assert {kernel.pads for kernel in pool} == {(True, True, True), (False, False, False)}
    assert {str(kernel.scheduler) for kernel in pool if kernel.pipeline in ("mem", "basic_v1")} == {
        "intrawave",
        "interwave",
    }
    assert all(kernel.is_complete and GEMM_RULES.of_arch(kernel, host) == () for kernel in pool)


def test_pool_and_refused_add_up_to_all_candidates() -> None:
    """Every candidate that is not in the host's pool is rejected with a reason."""
    host = load_arch("host")
    refused = list(_refused(host))
    assert len(refused) + len(gemm_pool(host)) == _size(HOST)
    assert all(row.reasons for row in refused)
    assert not {row.kernel for row in refused} & set(gemm_pool(host))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "more"), [("gfx1100", ()), ("gfx950", ("preshufflev2",))])
def test_restricting_a_space_loses_no_kernel(name: str, more: tuple[str, ...]) -> None:
    """Removing values that an architecture does not list gives the same pool as checking every candidate."""
    space = replace(AMD_SEARCH, tiles=((128, 128, 64),), pads=AMD_SEARCH.pads[:1], persistent=(True,))
    arch = load_arch(name)
    arch = replace(arch, pipelines=arch.pipelines + more)
    one_by_one = [kernel for kernel in space.table("fp16", "rcr") if not GEMM_RULES.of_arch(kernel, arch)]
    assert list(buildable(space, arch, "fp16")) == one_by_one
    assert {kernel.epilogue for kernel in one_by_one} == {"default", "cshuffle"}
    # gfx950's preshuffled kernels have additional warp tiles: 32x32x32 and 16x16x64.
    depths = {kernel.warp_tile_k for kernel in one_by_one if kernel.pipeline == "preshufflev2"}
    assert depths == ({8, 16, 32, 64} if more else set())


def test_pool_of_a_dtype_that_the_architecture_does_not_run_is_empty() -> None:
    """The host supports fp32 only, and gives this reason for each kernel."""
    host = load_arch("host")
    assert gemm_pool(host, "bf16") == ()
    refused = list(_refused(host, "bf16"))
    assert len(refused) == _size(HOST)
    assert all(any(has_values(reason, "host", "bf16", "fp32") for reason in row.reasons) for row in refused)
