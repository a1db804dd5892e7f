"""Product space of GEMM kernels: AMD's search space and the candidate pool's, restricted to the dtype's values.

Bases enumerate tile, waves, warp tile, pipeline, scheduler and epilogue; options are padding and persistence. Vector
widths are native, as in the pool.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.ops.gemm_universal.kernels.spaces import AMD_SEARCH, WaveBlock, space_of
from ckh.ops.gemm_universal.kernels.validity import GEMM_RULES
from ckh.search.kernels.product import KernelParameter, Options, Product, Searched, by

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.kernels.spaces import GemmSpace
    from ckh.ops.gemm_universal.problem import GemmProblem

_PARAMETERS = (
    *(KernelParameter(name, attrgetter(name)) for name in ("tile_m", "tile_n", "tile_k")),
    KernelParameter("wave", lambda kernel: by(kernel.wave)),
    KernelParameter("warp_tile", lambda kernel: by(kernel.warp_tile)),
    KernelParameter("pipeline", attrgetter("pipeline")),
    KernelParameter("scheduler", lambda kernel: str(kernel.scheduler)),
    *(KernelParameter(name, attrgetter(name)) for name in ("epilogue", "pad_m", "pad_n", "pad_k", "persistent")),
)


def _product_of(problem: GemmProblem, arch: ArchSpec) -> Product:
    """Return the kernels that a search may propose for a GEMM."""
    return _product(problem.dtype, problem.layout, arch)


@cache
def _product(dtype: str, layout: str, arch: ArchSpec) -> Product:
    whole = _space(dtype, arch)
    plain = replace(whole, pads=((True, True, True),), persistent=(False,)).narrowed(arch, dtype)
    rows = tuple((*pads, persistent) for pads in whole.pads for persistent in whole.persistent)
    options = Options(("pad_m", "pad_n", "pad_k", "persistent"), rows)
    return Product(plain.table(dtype, layout), options, GEMM_RULES, (), arch, _PARAMETERS)


def _space(dtype: str, arch: ArchSpec) -> GemmSpace:
    """Return AMD's space with the pool's tiles; on the host also with the pool's waves and warp tiles."""
    pool = space_of(arch)
    blocks = AMD_SEARCH.blocks
    if not arch.is_gpu:
        warp_tiles = arch.warp_tiles_for(dtype) if dtype in arch.dtypes else ()
        blocks = tuple(WaveBlock(wave, warp_tile) for wave, warp_tile in product(arch.wave_configs, warp_tiles))
    return replace(
        AMD_SEARCH,
        tiles=tuple(dict.fromkeys([*pool.tiles, *AMD_SEARCH.tiles])),
        blocks=tuple(dict.fromkeys([*pool.blocks, *blocks])),
        persistent=AMD_SEARCH.persistent if arch.is_gpu else (False,),
    )


SEARCHED = Searched(_product_of)
