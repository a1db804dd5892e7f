"""Pools and lists of kernels that read a shuffled B.

Source of the pools: the configuration of AMD's tile engine for these GEMMs; for flatmm, which it does not build, the
same tiles, smaller ones along M, and in 8 bits those of AITER's row-wise fp8 GEMMs with flatmm. Configurations of the
tile engine state whether N is permuted.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.kernels.pipelines import Scheduler
from ckh.kernels.pools import Pools
from ckh.ops.gemm_preshuffle.kernel_rules import PRESHUFFLE_RULES, GemmPreshuffleKernel, parse_preshuffle_kernel
from ckh.ops.gemm_preshuffle.problem import FLATMM, OP_TYPE, PRESHUFFLE
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of
from ckh.ops.gemm_universal.kernels.names import kernel_name
from ckh.ops.gemm_universal.kernels.search_space import searched_in
from ckh.ops.gemm_universal.kernels.spaces import GPU, GemmSpace
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.kernels.table import KernelTable

_SIZES = (64, 128, 192, 256)
_ROWS = (16, 32, *_SIZES)  # the first two are of flatmm
_TILES = tuple(product(_ROWS, _SIZES, _SIZES))
_SEARCHED_TILES = tuple(product(_ROWS, _SIZES, (32, *_SIZES)))
# Further ones of AITER's list (`gemm_a8w8_bpreshuffle_cktile_common.py`), except 48, 80 and 112 rows: an odd number of
# instructions along M, which the epilogue of headers of 2025 stores wrongly.
_AITERS = (
    *product((16,), (64, 128, 256), (512,)),
    (16, 512, 256),
    (32, 64, 512),
    *product((96,), _SIZES, (128, 256)),
    (160, 192, 128),
    *product((224,), (64, 128, 192), (128,)),
)


class PreshuffleSpace(GemmSpace):
    """A space of pipelines that the specifications list apart from the others."""

    def narrowed(self, arch: ArchSpec, dtype: str) -> GemmSpace:
        """Remove values that the architecture does not list, except for pipelines."""
        return replace(super().narrowed(arch, dtype), pipelines=self.pipelines)


# The tile engine's, and flatmm, with fewer rows too.
SPACE = PreshuffleSpace(
    tiles=_TILES,
    blocks=GPU.blocks,
    pipelines=(PRESHUFFLE, FLATMM),
    schedulers=(Scheduler.INTRAWAVE,),
    epilogues=GPU.epilogues,
    pads=((False,) * 3,),
    persistent=GPU.persistent,
)


# AITER's flatmm.
_FURTHER = replace(SPACE, tiles=_AITERS, pipelines=(FLATMM,))


def _searched(dtype: str, _arch: ArchSpec) -> GemmSpace:
    return replace(SPACE, tiles=(*_SEARCHED_TILES, *(_AITERS if DTYPE_BYTES[dtype] == 1 else ())))


def _table(arch: ArchSpec, *group: Any) -> KernelTable[GemmPreshuffleKernel]:
    fields = dict(zip(GemmPreshuffleKernel.group_fields, group, strict=True))
    spaces = (SPACE, _FURTHER) if DTYPE_BYTES[fields["dtype"]] == 1 else (SPACE,)
    table: KernelTable[GemmPreshuffleKernel]
    table, *others = (
        space.narrowed(arch, fields["dtype"]).table(kind=GemmPreshuffleKernel, **fields) for space in spaces
    )
    for other in others:
        table = table.joined(other)
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
LISTS = lists_of(
    ListedKernels(
        GemmPreshuffleKernel,
        PRESHUFFLE_RULES,
        parse_preshuffle_kernel,
        OP_TYPE,
        PreshuffleSpace,
        flags=("permute_n",),
        default_scheduler=True,
    )
)
