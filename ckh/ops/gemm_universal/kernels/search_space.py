"""Product space of GEMM kernels: AMD's search space and the candidate pool's, restricted to the dtype's values.

Bases enumerate tile, waves, warp tile, pipeline, scheduler and epilogue; options are padding and persistence. Vector
widths are native, as in the pool.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.gemm_universal.features import KERNEL_COLUMNS
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import AMD_SEARCH, WaveBlock, space_of
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.search.product import Options, Product, Searched, parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.kernels.table import Axis
    from ckh.ops.gemm_universal.kernels.pool import GemmSpace

_PARAMETERS = (*TRIPLES["tile"], "wave", "warp_tile", *(name for name in KERNEL_COLUMNS if name not in SIZES))


def searched_in(
    space: Callable[[str, ArchSpec], GemmSpace],
    rules: Rules[Any],
    kind: type[GemmKernel] = GemmKernel,
    own: Axis = ((), [()]),
) -> Searched[Any]:
    """Return the kernels, of a class, that a search may propose in the space of a dtype and an architecture.

    `own` are fields of the class that a problem leaves open, and the combinations of their values.
    """

    @cache
    def product_of(group: tuple[Any, ...], arch: ArchSpec) -> Product:
        fields = dict(zip(kind.group_fields, group, strict=True))
        dtype = fields["dtype"]
        whole = space(dtype, arch)
        plain = replace(whole, pads=whole.pads[:1], persistent=(False,)).narrowed(arch, dtype)
        choices = product(whole.pads, whole.persistent, own[1])
        rows = tuple((*pads, persistent, *more) for pads, persistent, more in choices)
        options = Options((*TRIPLES["pads"], "persistent", *own[0]), rows)
        varied = parameters(*_PARAMETERS, *own[0])
        return Product(plain.table(kind=kind, **fields), options, rules, (), arch, varied)

    group_of = attrgetter(*kind.group_fields)  # problems have these fields too
    return Searched(lambda problem, arch: product_of(group_of(problem), arch))


def search_space_of(dtype: str, arch: ArchSpec) -> GemmSpace:
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


SEARCHED = searched_in(search_space_of, GEMM_RULES)
