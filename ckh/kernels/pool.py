"""Pools: the kernels that are candidates on an architecture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ckh.kernels.config import ConvKernel, default_layout
from ckh.kernels.tiles import CONV_TILES
from ckh.kernels.validity import arch_reasons
from ckh.kernels.variants import DEFAULT_SPECIALIZATION, PIPELINE_VARIANTS

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.problems import Direction


@dataclass(frozen=True, slots=True)
class RefusedKernel:
    """A kernel that an architecture does not build, and every rule it breaks."""

    kernel: ConvKernel
    reasons: tuple[str, ...]


@cache
def conv_pool(
    variant: Direction, arch: ArchSpec, ndim_spatial: int = 2, dtype: str | None = None
) -> tuple[ConvKernel, ...]:
    """The kernels of the ten tiles and thirty variants that break no rule of the architecture, in table order.

    The dtype is the architecture's own unless given.
    """
    return tuple(
        kernel
        for kernel in _candidates(variant, ndim_spatial, dtype or arch.default_dtype)
        if not arch_reasons(kernel, arch)
    )


def refused_pool(
    variant: Direction, arch: ArchSpec, ndim_spatial: int = 2, dtype: str | None = None
) -> tuple[RefusedKernel, ...]:
    """The rest of the ten tiles and thirty variants, with the reasons."""
    candidates = _candidates(variant, ndim_spatial, dtype or arch.default_dtype)
    judged = ((kernel, arch_reasons(kernel, arch)) for kernel in candidates)
    return tuple(RefusedKernel(kernel, reasons) for kernel, reasons in judged if reasons)


def _candidates(variant: Direction, ndim_spatial: int, dtype: str) -> tuple[ConvKernel, ...]:
    return tuple(
        ConvKernel(
            variant=variant,
            dtype=dtype,
            ndim_spatial=ndim_spatial,
            tile_m=row.tile[0],
            tile_n=row.tile[1],
            tile_k=row.tile[2],
            pipeline=how.pipeline,
            scheduler=how.scheduler,
            wave_m=row.wave[0],
            wave_n=row.wave[1],
            wave_k=row.wave[2],
            warp_tile_m=row.warp_tile[0],
            warp_tile_n=row.warp_tile[1],
            warp_tile_k=row.warp_tile[2],
            vector_a=row.vectors[0],
            vector_b=row.vectors[1],
            vector_c=row.vectors[2],
            layout=default_layout(ndim_spatial),
            epilogue="cshuffle",
            double_smem_buffer=how.double_smem_buffer,
            split_image=how.split_image,
            explicit_gemm=False,
            specialization=DEFAULT_SPECIALIZATION,
            pad_m=True,
            pad_n=True,
            pad_k=True,
            block_per_cu=1,
        )
        for row in CONV_TILES
        for how in PIPELINE_VARIANTS
    )
