"""The product of convolution kernels: all tiles, waves, warp tiles, pipeline variants, vector widths and blocks per CU.

The tiles are those of the candidate pool and the curated ones of the rule sets. Merged groups, two stages, stream-K,
split-K, explicit GEMM, specializations and the pads are as in the pool.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.kernels.config import ConvKernel, default_layout
from ckh.kernels.rules.matrix import is_loadable
from ckh.kernels.rules.tables import curated_tiles
from ckh.kernels.tiles import CONV_TILES, tile_of, vectors_of, warp_tile_of, wave_of
from ckh.kernels.validity import check, problem_reasons
from ckh.kernels.variants import DEFAULT_SPECIALIZATION, PIPELINE_VARIANTS
from ckh.search.kernels.product import Options, Parameter, Product, by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.problems import ConvProblem

_VECTORS = (1, 2, 4, 8)
_POOL_VECTORS: Triple = CONV_TILES[0].vectors
# The host's code is the same for any number of blocks.
_GPU_BLOCKS_PER_CU, _HOST_BLOCKS_PER_CU = (1, 2), (1,)

_PARAMETERS = (
    *(Parameter(name, attrgetter(name)) for name in ("tile_m", "tile_n", "tile_k")),
    Parameter("wave", lambda kernel: by(wave_of(kernel))),
    Parameter("warp_tile", lambda kernel: by(warp_tile_of(kernel))),
    *(Parameter(name, attrgetter(name)) for name in ("vector_a", "vector_b", "vector_c", "pipeline")),
    Parameter("scheduler", lambda kernel: str(kernel.scheduler)),
    *(Parameter(name, attrgetter(name)) for name in ("double_smem_buffer", "split_image", "block_per_cu")),
)


def conv_product(problem: ConvProblem, arch: ArchSpec) -> Product:
    """The kernels that may be proposed for a convolution."""
    bases = tuple(kernel for kernel in _bases(problem, arch) if not check(kernel, arch))
    is_legal = _JudgeOf(problem, arch)
    return Product(bases, _options(bases, problem, arch), is_legal, _PARAMETERS)


class _JudgeOf:
    """Whether kernels can be built and apply to a problem."""

    def __init__(self, problem: ConvProblem, arch: ArchSpec) -> None:
        self._problem = problem
        self._arch = arch

    def __call__(self, kernel: ConvKernel) -> bool:
        return not check(kernel, self._arch, self._problem) and self._is_loadable(kernel)

    def _is_loadable(self, kernel: ConvKernel) -> bool:
        """The threads of CK Tile's kernels must load alike, in whole vectors."""
        lanes = self._arch.wavefront_size
        how = tile_of(kernel), wave_of(kernel), vectors_of(kernel)
        return not self._arch.is_gpu or is_loadable(*how, kernel.dtype, lanes)


def _bases(problem: ConvProblem, arch: ArchSpec) -> Iterator[ConvKernel]:
    warp_tiles = arch.warp_tiles_for(problem.dtype) if problem.dtype in arch.dtypes else ()
    for tile, wave, warp_tile in product(_tiles(problem), arch.wave_configs, warp_tiles):
        if any(size % (waves * width) for size, waves, width in zip(tile, wave, warp_tile, strict=True)):
            continue  # no rule need be asked, and most combinations end here
        for how in PIPELINE_VARIANTS:
            yield ConvKernel(
                variant=problem.variant,
                dtype=problem.dtype,
                ndim_spatial=problem.ndim,
                tile_m=tile[0],
                tile_n=tile[1],
                tile_k=tile[2],
                pipeline=how.pipeline,
                scheduler=how.scheduler,
                wave_m=wave[0],
                wave_n=wave[1],
                wave_k=wave[2],
                warp_tile_m=warp_tile[0],
                warp_tile_n=warp_tile[1],
                warp_tile_k=warp_tile[2],
                vector_a=_POOL_VECTORS[0],
                vector_b=_POOL_VECTORS[1],
                vector_c=_POOL_VECTORS[2],
                layout=default_layout(problem.ndim),
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


def _tiles(problem: ConvProblem) -> tuple[Triple, ...]:
    curated = (row.tile for row in curated_tiles(problem.variant))
    return tuple(dict.fromkeys([*(row.tile for row in CONV_TILES), *curated]))


def _options(bases: tuple[ConvKernel, ...], problem: ConvProblem, arch: ArchSpec) -> Options:
    """Vector widths and blocks per CU, without the widths that no kernel could use for the problem."""
    # What else a problem asks of a kernel depends on these two.
    kinds = {(kernel.pipeline, kernel.tile_k): kernel for kernel in bases}.values()

    def is_of_use(vectors: tuple[int, ...]) -> bool:
        a, b, c = vectors
        widened = (replace(kernel, vector_a=a, vector_b=b, vector_c=c) for kernel in kinds)
        return any(not problem_reasons(kernel, arch, problem) for kernel in widened)

    useful = [vectors for vectors in product(_VECTORS, repeat=3) if is_of_use(vectors)]
    blocks = _GPU_BLOCKS_PER_CU if arch.is_gpu else _HOST_BLOCKS_PER_CU
    rows = tuple((*vectors, count) for vectors in useful for count in blocks)
    return Options(("vector_a", "vector_b", "vector_c", "block_per_cu"), rows)
