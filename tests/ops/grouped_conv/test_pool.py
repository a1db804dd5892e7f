"""Pools: sizes by architecture, and reasons for rejection."""

from __future__ import annotations

from math import prod

import pytest

from ckh.archs import load_arch
from ckh.ops.grouped_conv.kernels.pool import conv_pool, refused_pool
from ckh.problems import Direction
from tests.refusals import has_values


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
    refused = refused_pool(Direction.FORWARD, host, dtype="bf16")
    assert len(refused) == 300
    assert all(any(has_values(reason, "host", "bf16", "fp32") for reason in row.reasons) for row in refused)


def test_half_precision_loses_no_tile_to_lds_on_gfx942_but_fp32_does() -> None:
    """At 4 bytes 64x64x128 fills 64 KB: compv3 supports one buffer, and not two."""
    kernels = conv_pool(Direction.FORWARD, load_arch("gfx942"), dtype="fp32")
    refused = refused_pool(Direction.FORWARD, load_arch("gfx942"), dtype="fp32")
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
