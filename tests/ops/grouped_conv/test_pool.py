"""Pools: sizes by architecture, and reasons for rejection."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.kernels.pools import TIMED_NAME, KernelList, timed_file
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.pool import POOLS, conv_pool
from ckh.problems import Direction
from tests.learn.conftest import AMD_PROBLEMS
from tests.refusals import expect_values, has_values

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize(
    ("arch", "forward", "backward"),
    [("host", 300, 260), ("gfx950", 260, 260), ("gfx942", 208, 208), ("gfx1100", 260, 260), ("gfx1201", 260, 260)],
)
def test_pool_sizes(arch: str, forward: int, backward: int, ndim: int) -> None:
    """Ten tiles times thirty variants; only host forward has compv5; gfx942 lacks the two tiles of sixteen waves."""
    sizes = {direction: len(conv_pool(direction, load_arch(arch), ndim)) for direction in Direction}
    assert sizes == {Direction.FORWARD: forward, Direction.BWD_DATA: backward, Direction.BWD_WEIGHT: backward}


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1200", "gfx1201"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rdna_has_its_own_tiles(arch: str, dtype: str) -> None:
    """It has one matrix instruction, blocks of eight waves, and the tile of CK's own examples among them."""
    pool = conv_pool(Direction.FORWARD, load_arch(arch), dtype=dtype)
    assert {kernel.warp_tile for kernel in pool} == {(16, 16, 16)}
    assert {prod(kernel.wave) for kernel in pool} == {8}
    assert ((128, 128, 32), (4, 2, 1)) in {(kernel.tile, kernel.wave) for kernel in pool}
    assert len({kernel.tile for kernel in pool}) == 10


def test_pool_of_a_dtype_that_the_architecture_does_not_run_is_empty() -> None:
    """The host supports fp32 only, and gives this reason for each kernel."""
    host = load_arch("host")
    assert conv_pool(Direction.FORWARD, host, dtype="bf16") == ()
    refused = tuple(POOLS.refused(host, Direction.FORWARD, 2, "bf16"))
    assert len(refused) == 300
    assert all(any(has_values(reason, "host", "bf16", "fp32") for reason in row.reasons) for row in refused)


def test_half_precision_loses_no_tile_to_lds_on_gfx942_but_fp32_does() -> None:
    """At 4 bytes 64x64x128 fills 64 KB: compv3 supports one buffer, and not two."""
    kernels = conv_pool(Direction.FORWARD, load_arch("gfx942"), dtype="fp32")
    refused = tuple(POOLS.refused(load_arch("gfx942"), Direction.FORWARD, 2, "fp32"))
    lds = {
        (row.kernel.pipeline, row.kernel.double_smem_buffer)
        for row in refused
        if row.kernel.tile == (64, 64, 128) and any("LDS" in reason for reason in row.reasons)
    }
    assert lds == {
        ("compv3", True),
        ("compv5", True),
        ("mem", True),
        ("compv4", True),
        ("compv6", False),
        ("compv6", True),
    }
    assert {kernel.tile_k for kernel in kernels} == {64}


def test_measurements_count_on_their_own_architecture_alone(tmp_path: Path) -> None:
    """There measured kernels are first, whatever the rules say; elsewhere they are kernels like all others."""
    gfx950, gfx942 = load_arch("gfx950"), load_arch("gfx942")
    kernels, others = (conv_pool(Direction.FORWARD, arch, 2, "bf16") for arch in (gfx950, gfx942))
    waves = next(kernel for kernel in kernels if prod(kernel.wave) == 16)  # which gfx942 does not have
    unlisted = replace(others[0], tile_m=2 * others[0].tile_m)  # a tile of neither pool
    measured = (waves, others[-1], replace(waves, tile_m=2 * waves.tile_m), unlisted)
    (tmp_path / TIMED_NAME).write_bytes(timed_file("gfx950", {kernel_name(kernel) for kernel in measured}))
    kind, listed = (Direction.FORWARD, 2, "bf16"), KernelList("list", (others[0], *measured))
    here = POOLS.candidates(AMD_PROBLEMS[0], gfx950, *kind, model=tmp_path)
    assert here.timed == here.timed_candidates == 4
    assert here.pool == (*measured, *(kernel for kernel in kernels if kernel not in measured))
    there = POOLS.candidates(AMD_PROBLEMS[0], gfx942, *kind, model=tmp_path)
    assert (there.timed, there.pool) == (None, (*others, unlisted))
    assert POOLS.of(gfx950, *kind, model=tmp_path, only=listed) == (*measured, others[0])
    assert POOLS.of(gfx942, *kind, model=tmp_path, only=listed) == (others[0], others[-1], unlisted)
    left_out = POOLS.candidates(AMD_PROBLEMS[0], gfx942, *kind, model=tmp_path, only=listed).refused
    (reason,) = (reason for reason, count in left_out.items() if count == 2)
    expect_values(reason, "gfx942", "4x4x1")
