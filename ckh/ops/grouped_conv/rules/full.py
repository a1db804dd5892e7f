"""The `full` rule set: every curated tile with every choice curated for it, and the kernels with options.

`full_candidates` are the combinations of the tables; whether an architecture can build them is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.grouped_conv.kernel import ConvKernel, default_layout
from ckh.ops.grouped_conv.kernels.variants import (
    DEFAULT_SPECIALIZATION,
    FILTER1X1_PAD0,
    FILTER1X1_STRIDE1_PAD0,
    FILTER3X3,
)
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.ops.grouped_conv.rules.tables import (
    HALF_DTYPES,
    PIPES,
    RULE_DTYPES,
    CuratedTile,
    Pipe,
    curated_tiles,
    is_loadable,
    keeps_first_depth,
    triple,
    warp_depth,
    wave_and_shape,
)
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple


@dataclass(frozen=True, slots=True)
class KernelOption:
    """Options, and the tiles they are tried on; with the tiles' own pipelines unless pipelines are given."""

    tiles: tuple[Triple, ...] = ()
    pipes: tuple[Pipe, ...] | None = None
    half_only: bool = False
    split_image: bool = False
    num_groups_to_merge: int = 1
    two_stage: bool = False
    explicit_gemm: bool = False
    streamk: str | None = None
    streamk_persistent: bool = False

    def is_for(self, dtype: str) -> bool:
        """True if kernels of the dtype have these options."""
        return dtype in HALF_DTYPES or not self.half_only


PLAIN = KernelOption()


def _tiles(text: str) -> tuple[Triple, ...]:
    return tuple(triple(word, "x") for word in text.split())


_V1, _MEM, _ASYNC, _WAVELET = (PIPES[code] for code in ("v1", "mem", "async", "wav"))
_STREAMK_PIPES = (_V1, _MEM, _ASYNC)
_STREAMK_TILES = _tiles("16x16x32 16x32x64 32x16x64 64x16x64 64x64x64 128x32x32")
_TWO_STAGE_EXPLICIT_TILES = _tiles("16x16x64 16x32x64 16x64x64 32x16x64 64x16x64 128x16x64 256x16x64")
_EXPLICIT_TILES = _tiles(
    "16x16x64 16x32x64 16x64x64 16x128x64 16x256x64 32x16x64 64x16x64 128x16x64 128x128x64 256x16x64 256x256x32"
)
_SPLIT_IMAGE_TILES = _tiles("64x64x16 64x64x32 256x128x16 256x128x32")

FEATURES: dict[Direction, tuple[KernelOption, ...]] = {
    Direction.FORWARD: (
        KernelOption(_SPLIT_IMAGE_TILES, (_V1,), split_image=True),
        KernelOption(_tiles("64x16x16 128x32x32"), num_groups_to_merge=8),
        KernelOption(_tiles("64x16x16"), num_groups_to_merge=16),
        KernelOption(_tiles("64x16x16"), num_groups_to_merge=32),
    ),
    Direction.BWD_DATA: (KernelOption(_tiles("256x32x64"), (_WAVELET,), half_only=True, num_groups_to_merge=32),),
    Direction.BWD_WEIGHT: (
        KernelOption(_EXPLICIT_TILES, half_only=True, explicit_gemm=True),
        KernelOption(_tiles("16x16x32 64x64x64"), half_only=True, two_stage=True),
        KernelOption(_TWO_STAGE_EXPLICIT_TILES, half_only=True, two_stage=True, explicit_gemm=True),
        KernelOption(_tiles("32x32x32 32x64x32"), half_only=True, num_groups_to_merge=2, two_stage=True),
        KernelOption(_tiles("16x128x32 32x64x32 64x32x32"), half_only=True, num_groups_to_merge=4, two_stage=True),
        KernelOption(_tiles("16x256x32 32x128x32 128x32x32"), half_only=True, num_groups_to_merge=8, two_stage=True),
        KernelOption(_tiles("16x32x64 16x64x64 64x128x64"), (_ASYNC,), half_only=True, num_groups_to_merge=2),
        KernelOption(_STREAMK_TILES, _STREAMK_PIPES, streamk="tree"),
        KernelOption(_STREAMK_TILES, _STREAMK_PIPES, streamk="tree", streamk_persistent=True),
    ),
}


_LEAST_SPECIALIZED_TILE_K = 16
_LARGEST_FILTER3X3_TILE = 4096


def full_candidates(variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec) -> tuple[ConvKernel, ...]:
    """Return all kernels of the tables for direction, dimensions and dtype, plain ones first, in table order."""
    if dtype not in RULE_DTYPES or ndim_spatial not in CONV_LAYOUTS:
        return ()
    kernels = (
        build_kernel(variant, ndim_spatial, dtype, row.tile, wave, shape, vectors, pipe, specialization, feature, arch)
        for row, feature, pipes in _combinations(variant, ndim_spatial, dtype)
        for wave, shape in wave_and_shape(variant, row.tile, row.waves, dtype, arch)
        for vectors in row.vectors(dtype)
        if is_loadable(row.tile, wave, vectors, dtype, arch.wavefront_size)
        for pipe in pipes
        # Wavelet kernels have no entry point for an explicit GEMM.
        if not (feature.explicit_gemm and pipe.pipeline == "wavelet")
        for specialization in specializations(variant, row.tile)
    )
    return tuple(dict.fromkeys(kernels))


def specializations(variant: Direction, tile: Triple) -> tuple[str, ...]:
    """Return the specializations that a tile is tried with."""
    if variant is not Direction.FORWARD:
        return (DEFAULT_SPECIALIZATION, FILTER1X1_STRIDE1_PAD0)
    tile_m, tile_n, tile_k = tile
    if tile_k < _LEAST_SPECIALIZED_TILE_K:
        return (DEFAULT_SPECIALIZATION,)
    every = (DEFAULT_SPECIALIZATION, FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0)
    return (*every, FILTER3X3) if tile_m * tile_n <= _LARGEST_FILTER3X3_TILE else every


def _combinations(
    variant: Direction, ndim_spatial: int, dtype: str
) -> Iterator[tuple[CuratedTile, KernelOption, tuple[Pipe, ...]]]:
    rows = curated_tiles(variant)
    for row in rows:
        if row.is_for(ndim_spatial, dtype):
            yield row, PLAIN, row.pipes(dtype)
    by_tile = {row.tile: row for row in rows}
    for feature in FEATURES[variant]:
        if feature.is_for(dtype):
            # A feature's tiles are tried in 2D and 3D, even if only one of them has the tile among its plain kernels.
            for tile in feature.tiles:
                row = by_tile[tile]
                yield row, feature, row.pipes(dtype) if feature.pipes is None else feature.pipes


def blocks_per_cu(pipeline: str) -> int:
    """Blocks per CU that the compiler optimizes for: one if tiles are double-buffered, else two."""
    return 1 if pipeline in DOUBLE_SMEM_PIPELINES else 2


def build_kernel(  # noqa: PLR0913, PLR0917 - a kernel is that many choices, and each caller has them one by one
    variant: Direction,
    ndim_spatial: int,
    dtype: str,
    tile: Triple,
    wave: Triple,
    shape: int,
    vectors: Triple,
    pipe: Pipe,
    specialization: str,
    feature: KernelOption,
    arch: ArchSpec,
) -> ConvKernel:
    """Return the complete kernel of these choices; `shape` is M = N of the matrix instruction."""
    first = keeps_first_depth(variant, tile, pipe.pipeline, feature.streamk)
    return ConvKernel(
        variant=variant,
        dtype=dtype,
        ndim_spatial=ndim_spatial,
        tile_m=tile[0],
        tile_n=tile[1],
        tile_k=tile[2],
        pipeline=pipe.pipeline,
        scheduler=pipe.scheduler,
        wave_m=wave[0],
        wave_n=wave[1],
        wave_k=wave[2],
        warp_tile_m=shape,
        warp_tile_n=shape,
        warp_tile_k=warp_depth(dtype, shape, tile[2], arch, first=first),
        vector_a=vectors[0],
        vector_b=vectors[1],
        vector_c=vectors[2],
        layout=default_layout(ndim_spatial),
        epilogue="cshuffle",
        double_smem_buffer=pipe.pipeline in DOUBLE_SMEM_PIPELINES,
        split_image=feature.split_image,
        num_groups_to_merge=feature.num_groups_to_merge,
        two_stage=feature.two_stage,
        explicit_gemm=feature.explicit_gemm,
        specialization=specialization,
        pad_m=True,
        pad_n=True,
        pad_k=True,
        block_per_cu=blocks_per_cu(pipe.pipeline),
        streamk=feature.streamk,
        streamk_persistent=feature.streamk_persistent,
    )
