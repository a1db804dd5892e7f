"""Product space of convolution kernels: tiles, waves, warp tiles, pipeline variants, vector widths and blocks per CU.

The tiles are those of the candidate pool and the curated tiles of the rule sets. Merged groups, two stages, stream-K,
split-K, explicit GEMM, specializations and padding are as in the pool.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from ckh.kernels.judging import RuleBook
from ckh.kernels.table import TRIPLES
from ckh.ops.grouped_conv.kernels.pool import table_of, variant_axis
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import tiles_of
from ckh.ops.grouped_conv.rules.full import curated_tiles, is_loadable
from ckh.search.product import Options, Product, Searched, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.ops.grouped_conv.problem import ConvProblem
    from ckh.problems import Direction

_VECTORS = (1, 2, 4, 8)
# The host's code is independent of the number of blocks.
_GPU_BLOCKS_PER_CU, _HOST_BLOCKS_PER_CU = (1, 2), (1,)

_PARAMETERS = parameters(
    *(*TRIPLES["tile"], "wave", "warp_tile", *TRIPLES["vectors"], "pipeline", "scheduler"),
    *("double_smem_buffer", "split_image", "block_per_cu"),
)


@RuleBook().rule
def _loads_whole_vectors(arch: ArchSpec, dtype: str, tile: Triple, wave: Triple, vectors: Triple) -> Iterator[str]:
    """On a GPU, all threads of CK Tile's kernels must load the same number of whole vectors."""
    if not is_loadable(tile, wave, vectors, dtype, arch.wavefront_size):
        yield "the threads of a block do not load equal numbers of whole vectors"


@cache
def _product(variant: Direction, ndim: int, dtype: str, arch: ArchSpec) -> Product:
    """Return the kernels that a search may propose for convolutions."""
    warp_tiles = arch.warp_tiles_for(dtype) if dtype in arch.dtypes else ()
    tiles = dict.fromkeys([*(row.tile for row in tiles_of(arch)), *(row.tile for row in curated_tiles(variant))])
    axes = zip(("tile", "wave", "warp_tile"), (tiles, arch.wave_configs, warp_tiles), strict=True)
    bases = table_of(variant, ndim, dtype, *((TRIPLES[name], list(rows)) for name, rows in axes), variant_axis())
    blocks = _GPU_BLOCKS_PER_CU if arch.is_gpu else _HOST_BLOCKS_PER_CU
    rows = tuple((*vectors, count) for vectors in product(_VECTORS, repeat=3) for count in blocks)
    options = Options((*TRIPLES["vectors"], "block_per_cu"), rows)
    return Product(bases, options, CONV_RULES, (_loads_whole_vectors,) if arch.is_gpu else (), arch, _PARAMETERS)


SEARCHED: Searched[ConvProblem] = Searched(
    lambda problem, arch: _product(problem.variant, problem.ndim, problem.dtype, arch)
)
