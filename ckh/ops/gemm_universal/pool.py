"""Pools: the GEMM kernels that are candidates on an architecture."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ckh.kernels.judging import ProblemRules
from ckh.kernels.table import KernelTable
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.spaces import GemmSpace, space_of
from ckh.ops.gemm_universal.validity import GEMM_RULES

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import RefusedKernel


@cache
def gemm_pool(arch: ArchSpec, dtype: str | None = None, layout: str = "rcr") -> tuple[GemmKernel, ...]:
    """The kernels of the architecture's space (`spaces.space_of`) that break none of its rules, in the space's order.

    The dtype is the architecture's own unless given; the pool of one that it does not run is empty.
    """
    return tuple(buildable(space_of(arch), arch, dtype, layout))


def buildable(
    space: GemmSpace, arch: ArchSpec, dtype: str | None = None, layout: str = "rcr"
) -> KernelTable[GemmKernel]:
    """The kernels of any space that break no rule of the architecture."""
    dtype = dtype or arch.default_dtype
    table = space.narrowed(arch, dtype).table(dtype, layout)
    return table.take(GEMM_RULES.judge(table, arch).passed)


def refused_pool(
    arch: ArchSpec, dtype: str | None = None, layout: str = "rcr", space: GemmSpace | None = None
) -> Iterator[RefusedKernel[GemmKernel]]:
    """The rest of the space with the reasons, one by one: on a GPU there are half a million."""
    return GEMM_RULES.refused((space or space_of(arch)).table(dtype or arch.default_dtype, layout), arch)


@cache
def refused_counts(arch: ArchSpec, dtype: str, layout: str) -> Counter[str]:
    """How many kernels of the space the architecture refuses, by the first rule that each breaks."""
    return GEMM_RULES.judge(space_of(arch).table(dtype, layout), arch).counts()


@cache
def pool_rules(arch: ArchSpec, dtype: str, layout: str) -> ProblemRules:
    """The rules of problems over a pool."""
    return ProblemRules(GEMM_RULES.problem, KernelTable.of(GemmKernel, gemm_pool(arch, dtype, layout)), arch)
