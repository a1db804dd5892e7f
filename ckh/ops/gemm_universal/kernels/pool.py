"""Pools: the GEMM kernels that are candidates on an architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.kernels.pools import Pools
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.names import kernel_name, parse_kernel_name
from ckh.ops.gemm_universal.kernels.spaces import GPU_BENCH, GemmSpace, space_of
from ckh.ops.gemm_universal.kernels.validity import GEMM_RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import RefusedKernel
    from ckh.kernels.table import KernelTable


def gemm_pool(arch: ArchSpec, dtype: str | None = None, layout: str = "rcr") -> tuple[GemmKernel, ...]:
    """The kernels of the architecture's space (`spaces.space_of`) that break none of its rules, in the space's order.

    The dtype is the architecture's own unless given; the pool of one that it does not run is empty.
    """
    return POOLS.of(arch, dtype or arch.default_dtype, layout)


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


def _table(arch: ArchSpec, dtype: str, layout: str) -> KernelTable[GemmKernel]:
    """The space; of a GPU's, which has far more combinations that cannot be built than kernels, what is left of it."""
    space = space_of(arch)
    return buildable(space, arch, dtype, layout) if arch.is_gpu else space.table(dtype, layout)


def _bench_table(arch: ArchSpec, dtype: str, layout: str) -> KernelTable[GemmKernel]:
    return buildable(GPU_BENCH, arch, dtype, layout) if arch.is_gpu else _table(arch, dtype, layout)


def _group(kernel: GemmKernel) -> tuple[str, str]:
    return kernel.dtype, kernel.layout


POOLS = Pools(GemmKernel, GEMM_RULES, _table, _group, parse_kernel_name, kernel_name)  # groups: dtype, layout
BENCH_POOLS = Pools(GemmKernel, GEMM_RULES, _bench_table, _group, parse_kernel_name, kernel_name)
