"""Pools: the candidate GEMM kernels of an architecture."""

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
    """Return the kernels of the architecture's space (`spaces.space_of`) that pass all rules, in the space's order.

    The default dtype is the architecture's; the pool of an unsupported dtype is empty.
    """
    return POOLS.of(arch, dtype or arch.default_dtype, layout)


def buildable(
    space: GemmSpace, arch: ArchSpec, dtype: str | None = None, layout: str = "rcr"
) -> KernelTable[GemmKernel]:
    """Return the kernels of any space that pass all rules of the architecture."""
    dtype = dtype or arch.default_dtype
    table = space.narrowed(arch, dtype).table(dtype, layout)
    return table.take(GEMM_RULES.judge(table, arch).passed)


def refused_pool(
    arch: ArchSpec, dtype: str | None = None, layout: str = "rcr", space: GemmSpace | None = None
) -> Iterator[RefusedKernel[GemmKernel]]:
    """Yield the rejected kernels of the space with their reasons; on a GPU there are half a million."""
    return GEMM_RULES.refused((space or space_of(arch)).table(dtype or arch.default_dtype, layout), arch)


def _table(arch: ArchSpec, dtype: str, layout: str) -> KernelTable[GemmKernel]:
    """Return the space; for a GPU, which has far more invalid combinations than kernels, the narrowed space."""
    space = space_of(arch)
    return buildable(space, arch, dtype, layout) if arch.is_gpu else space.table(dtype, layout)


def _bench_table(arch: ArchSpec, dtype: str, layout: str) -> KernelTable[GemmKernel]:
    return buildable(GPU_BENCH, arch, dtype, layout) if arch.is_gpu else _table(arch, dtype, layout)


def _group(kernel: GemmKernel) -> tuple[str, str]:
    return kernel.dtype, kernel.layout


POOLS = Pools(GemmKernel, GEMM_RULES, _table, _group, parse_kernel_name, kernel_name)  # groups: dtype, layout
BENCH_POOLS = Pools(GemmKernel, GEMM_RULES, _bench_table, _group, parse_kernel_name, kernel_name)
