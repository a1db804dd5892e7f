"""Pools: the kernels that are candidates on an architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.kernels.judging import RefusedKernel
from ckh.kernels.pools import Pools
from ckh.kernels.table import KernelTable
from ckh.ops.grouped_conv.kernel import ConvKernel, default_layout
from ckh.ops.grouped_conv.kernels.learned import learned_kernels
from ckh.ops.grouped_conv.kernels.names import kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.tiles import CONV_TILES, tiles_of
from ckh.ops.grouped_conv.kernels.validity import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import DEFAULT_SPECIALIZATION, PIPELINE_VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.archs import ArchSpec
    from ckh.kernels.table import Axis
    from ckh.ops.grouped_conv.kernels.tiles import ConvTile
    from ckh.problems import Direction

__all__ = ["RefusedKernel", "conv_pool", "refused_pool"]

# The axes of AMD's tables: a row of each is a kernel.
_TILE = tuple(f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk")
_VARIANT = ("pipeline", "scheduler", "double_smem_buffer", "split_image")


def conv_pool(
    variant: Direction, arch: ArchSpec, ndim_spatial: int = 2, dtype: str | None = None
) -> tuple[ConvKernel, ...]:
    """The kernels of the architecture's ten tiles and thirty variants that break no rule of it, in table order.

    The dtype is the architecture's own unless given.
    """
    return POOLS.of(arch, variant, ndim_spatial, dtype or arch.default_dtype)


def refused_pool(
    variant: Direction, arch: ArchSpec, ndim_spatial: int = 2, dtype: str | None = None
) -> tuple[RefusedKernel[ConvKernel], ...]:
    """The rest of the ten tiles and thirty variants, with the reasons."""
    return tuple(POOLS.refused(arch, variant, ndim_spatial, dtype or arch.default_dtype))


def tile_axis(rows: Iterable[ConvTile]) -> Axis:
    """Tiles with their waves and warp tiles, as an axis of a table of kernels."""
    return _TILE, [(*row.tile, *row.wave, *row.warp_tile) for row in rows]


def variant_axis() -> Axis:
    """The thirty variants, as an axis of a table of kernels."""
    return _VARIANT, [
        (row.pipeline, row.scheduler, row.double_smem_buffer, row.split_image) for row in PIPELINE_VARIANTS
    ]


def table_of(variant: Direction, ndim_spatial: int, dtype: str, *axes: Axis) -> KernelTable[ConvKernel]:
    """The kernels of a product of axes, whose other fields are those of the pool."""
    vectors = CONV_TILES[0].vectors
    same = {
        "variant": variant,
        "dtype": dtype,
        "ndim_spatial": ndim_spatial,
        "vector_a": vectors[0],
        "vector_b": vectors[1],
        "vector_c": vectors[2],
        "layout": default_layout(ndim_spatial),
        "epilogue": "cshuffle",
        "explicit_gemm": False,
        "specialization": DEFAULT_SPECIALIZATION,
        "pad_m": True,
        "pad_n": True,
        "pad_k": True,
        "block_per_cu": 1,
    }
    return KernelTable.product(ConvKernel, axes, **same)


def _table(arch: ArchSpec, variant: Direction, ndim_spatial: int, dtype: str) -> KernelTable[ConvKernel]:
    return table_of(variant, ndim_spatial, dtype, tile_axis(tiles_of(arch)), variant_axis())


def _group(kernel: ConvKernel) -> tuple[Direction, int, str]:
    return kernel.variant, kernel.ndim_spatial, kernel.dtype


# Groups: direction, number of dimensions, dtype.
POOLS = Pools(ConvKernel, CONV_RULES, _table, _group, parse_kernel_name, kernel_name, learned_kernels)
