"""Pools of kernels that read a shuffled B.

Source: the configuration of AMD's tile engine for these GEMMs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.kernels.pools import Pools
from ckh.kernels.scheduler import Scheduler
from ckh.ops.gemm_preshuffle.kernel import GemmPreshuffleKernel, parse_preshuffle_kernel
from ckh.ops.gemm_preshuffle.kernel_rules import PRESHUFFLE_RULES
from ckh.ops.gemm_universal.kernels.names import kernel_name
from ckh.ops.gemm_universal.kernels.search_space import searched_in
from ckh.ops.gemm_universal.kernels.spaces import GPU, GemmSpace

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.kernels.table import KernelTable

_SIZES = (64, 128, 192, 256)
_TILES = tuple(product(_SIZES, _SIZES, _SIZES))
_SEARCHED_TILES = tuple(product(_SIZES, _SIZES, (32, *_SIZES)))
_WAVES = ((1, 4, 1), (2, 2, 1), (4, 1, 1))


class _Space(GemmSpace):
    """A space of pipelines that the specifications list apart from the others."""

    def narrowed(self, arch: ArchSpec, dtype: str) -> GemmSpace:
        """Remove values that the architecture does not list, except for pipelines."""
        return replace(super().narrowed(arch, dtype), pipelines=self.pipelines)


def preshuffle_space(arch: ArchSpec) -> GemmSpace:
    """Return the space that an architecture's pool is filtered from, that of the tile engine's configuration."""
    return _Space(
        tiles=_TILES,
        blocks=tuple(block for block in GPU.blocks if block.wave in _WAVES),
        pipelines=arch.common.preshuffle_pipelines,
        schedulers=(Scheduler.INTRAWAVE,),
        epilogues=GPU.epilogues,
        pads=((False,) * 3,),
        persistent=GPU.persistent,
    )


def _searched(_dtype: str, arch: ArchSpec) -> GemmSpace:
    return replace(preshuffle_space(arch), tiles=_SEARCHED_TILES, blocks=GPU.blocks)


def _table(arch: ArchSpec, *group: Any) -> KernelTable[GemmPreshuffleKernel]:
    fields = dict(zip(GemmPreshuffleKernel.group_fields, group, strict=True))
    space = preshuffle_space(arch).narrowed(arch, fields["dtype"])
    table: KernelTable[GemmPreshuffleKernel] = space.table(kind=GemmPreshuffleKernel, **fields)
    return table.take(PRESHUFFLE_RULES.judge(table, arch).passed)


POOLS = Pools(
    GemmPreshuffleKernel,
    PRESHUFFLE_RULES,
    _table,
    attrgetter(*GemmPreshuffleKernel.group_fields),
    parse_preshuffle_kernel,
    kernel_name,
)
SEARCHED = searched_in(_searched, PRESHUFFLE_RULES, GemmPreshuffleKernel)
