"""Spaces of candidate kernels, the values of each parameter, and pools: their products, filtered by rules.

AMD's space is the parameter space of its search (`GemmUniversalFeatureEngine.get_parameter_space`) with its constraint
of 2, 4 or 8 waves. AMD lists waves and warp tiles by axis; here they are blocks, so that a space can also list pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.kernels.declaration import usual_values
from ckh.kernels.pipelines import PIPELINE_CODES, TABLE_PIPELINES, Scheduler
from ckh.kernels.pools import Pools
from ckh.kernels.table import TRIPLES, KernelTable
from ckh.ops.gemm_universal.kernel import GemmKernel, kernel_name, parse_kernel_name
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.judging import Rules
    from ckh.kernels.table import Axis


Pads = tuple[bool, bool, bool]


@dataclass(frozen=True, slots=True)
class WaveBlock:
    """Waves per block and the tile of one matrix instruction."""

    wave: Triple
    warp_tile: Triple


@dataclass(frozen=True, slots=True)
class GemmSpace:
    """Space of candidates: all combinations of these values."""

    tiles: tuple[Triple, ...]
    blocks: tuple[WaveBlock, ...]
    pipelines: tuple[str, ...]
    schedulers: tuple[Scheduler, ...]
    epilogues: tuple[str, ...]
    pads: tuple[Pads, ...]
    persistent: tuple[bool, ...]

    def narrowed(self, arch: ArchSpec, dtype: str) -> GemmSpace:
        """Remove values that the architecture does not list; no valid kernel is lost."""
        warp_tiles: frozenset[Triple] = frozenset()
        if dtype in arch.dtypes:
            warp_tiles = frozenset(arch.warp_tiles_for(dtype) + arch.warp_tiles_for(dtype, preshuffle=True))
        return replace(
            self,
            blocks=tuple(b for b in self.blocks if arch.supports_wave(b.wave) and b.warp_tile in warp_tiles),
            pipelines=tuple(name for name in self.pipelines if name in arch.pipelines),
            epilogues=tuple(name for name in self.epilogues if name in arch.epilogues),
        )

    def table(self, dtype: str, layout: str, kind: type[GemmKernel] = GemmKernel, **own: Any) -> KernelTable[Any]:
        """Return the candidates, of a class with its own fields, as a table; there can be hundreds of thousands."""
        axes: list[Axis] = [
            (TRIPLES["tile"], list(self.tiles)),
            (TRIPLES["wave"] + TRIPLES["warp_tile"], [(*block.wave, *block.warp_tile) for block in self.blocks]),
            (("pipeline",), [(name,) for name in self.pipelines]),
            (("scheduler",), [(scheduler,) for scheduler in self.schedulers]),
            (("epilogue",), [(name,) for name in self.epilogues]),
            (TRIPLES["pads"], list(self.pads)),
            (("persistent",), [(is_persistent,) for is_persistent in self.persistent]),
        ]
        return KernelTable.product(kind, axes, dtype=dtype, layout=layout, **usual_values(GemmKernel), **own)


_PADDED, _UNPADDED = (True,) * 3, (False,) * 3
_NUM_WAVES = (2, 4, 8)
_AMD_TILES = (32, 64, 128, 192, 256)
_AMD_BLOCKS = tuple(
    WaveBlock((wave_m, wave_n, 1), warp_tile)
    for wave_m, wave_n in product((1, 2, 4), repeat=2)
    if wave_m * wave_n in _NUM_WAVES
    for warp_tile in product((4, 16, 32, 64), (4, 16, 32, 64), (8, 16, 32, 64, 128))
)

# AMD's whole search space, with all options.
AMD_SEARCH = GemmSpace(
    tiles=tuple(product(_AMD_TILES, _AMD_TILES, (32, 64, 128, 256))),
    blocks=_AMD_BLOCKS,
    pipelines=tuple(PIPELINE_CODES),
    schedulers=tuple(Scheduler),
    epilogues=("default", "cshuffle"),
    pads=tuple((m, n, k) for m, n, k in product((True, False), repeat=3)),
    persistent=(True, False),
)

# The pool of a GPU: AMD's space with padding along every axis or along none. Of equivalent kernels the first is taken:
# where sizes divide, an unpadded one with the default epilogue and one block per tile. Instructions of 4x64 and 64x4
# run at half or a quarter of the peak rate, and no tile is narrower than a full-rate instruction: only a search or a
# list has them.
GPU = replace(
    AMD_SEARCH,
    blocks=tuple(block for block in _AMD_BLOCKS if 4 not in block.warp_tile),  # noqa: PLR2004
    epilogues=("default", "cshuffle"),
    pads=(_UNPADDED, _PADDED),
    persistent=(False, True),
)

# Kernels of a bench run on a GPU without a filter: each geometry, pipeline and scheduler, padded or not, persistent or
# not, with the epilogue that supports the most problems: it can split K, whereas single elements cannot be added in
# pairs.
GPU_BENCH = replace(GPU, epilogues=("cshuffle",))

_HOST_WAVES: dict[Triple, tuple[Triple, ...]] = {
    (1, 4, 1): ((16, 16, 16), (16, 16, 32), (32, 32, 16)),
    (2, 2, 1): ((16, 16, 16), (16, 16, 32)),
    (4, 1, 1): ((16, 16, 16),),
}

# The pool of the host. wave_n x warp_tile_n columns form register blocks of 16, 32, 64 and 128 floats, each also with
# a larger K per step; the tiles of A and B together take 24 to 160 KB; an unpadded kernel has no code for the remainder
# of an axis.
HOST = GemmSpace(
    tiles=(
        (32, 64, 64),
        (32, 128, 256),
        (64, 64, 256),
        (64, 128, 128),
        (64, 256, 64),
        (128, 128, 128),
        (128, 256, 64),
        (192, 128, 128),
        (256, 64, 64),
        (256, 128, 32),
        (256, 256, 64),
    ),
    blocks=tuple(WaveBlock(wave, warp_tile) for wave, warp_tiles in _HOST_WAVES.items() for warp_tile in warp_tiles),
    pipelines=TABLE_PIPELINES,
    schedulers=tuple(Scheduler),
    epilogues=("cshuffle",),
    pads=(_PADDED, _UNPADDED),
    persistent=(False,),
)


def space_of(arch: ArchSpec) -> GemmSpace:
    """Return the space that an architecture's pool is filtered from."""
    return GPU if arch.is_gpu else HOST


K = TypeVar("K", bound=GemmKernel)


def gemm_pool(arch: ArchSpec, dtype: str | None = None, layout: str = "rcr") -> tuple[GemmKernel, ...]:
    """Return the kernels of the architecture's space (`space_of`) that pass all rules, in the space's order.

    The default dtype is the architecture's; the pool of an unsupported dtype is empty.
    """
    return POOLS.of(arch, dtype or arch.default_dtype, layout)


def buildable(
    space: GemmSpace,
    arch: ArchSpec,
    dtype: str | None = None,
    layout: str = "rcr",
    kind: type[GemmKernel] = GemmKernel,
    **own: Any,
) -> KernelTable[Any]:
    """Return the kernels of any space, of a class with its own fields, that pass all rules of the architecture."""
    dtype = dtype or arch.default_dtype
    table = space.narrowed(arch, dtype).table(dtype, layout, kind, **own)
    return table.take(GEMM_RULES.judge(table, arch).passed)


def pools_of(
    kind: type[K],
    rules: Rules[K],
    parse: Callable[[str], K],
    space: Callable[[ArchSpec], GemmSpace],
    own: Axis = ((), [()]),
) -> Pools[K]:
    """Return the pools of an operation, by the group of its kernels."""

    def table(arch: ArchSpec, *group: Any) -> KernelTable[K]:
        """Return the space; for a GPU, which has far more invalid combinations than kernels, the narrowed space."""
        full, fields = space(arch), dict(zip(kind.group_fields, group, strict=True))
        plain = buildable(full, arch, kind=kind, **fields) if arch.is_gpu else full.table(kind=kind, **fields)
        return plain.crossed(*own) if own[0] else plain

    return Pools(kind, rules, table, attrgetter(*kind.group_fields), parse, kernel_name)


def bench_space(arch: ArchSpec) -> GemmSpace:
    """Return the space of a bench run without a filter."""
    return GPU_BENCH if arch.is_gpu else space_of(arch)


POOLS = pools_of(GemmKernel, GEMM_RULES, parse_kernel_name, space_of)
BENCH_POOLS = pools_of(GemmKernel, GEMM_RULES, parse_kernel_name, bench_space)
