"""Pools: the GEMM kernels that are candidates on an architecture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ckh.ops.gemm_universal.spaces import GemmSpace, space_of
from ckh.ops.gemm_universal.validity import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.kernel import GemmKernel


@dataclass(frozen=True, slots=True)
class RefusedKernel:
    """A kernel that an architecture does not build, and every rule it breaks."""

    kernel: GemmKernel
    reasons: tuple[str, ...]


@cache
def gemm_pool(arch: ArchSpec, dtype: str | None = None, layout: str = "rcr") -> tuple[GemmKernel, ...]:
    """The kernels of the architecture's space (`spaces.space_of`) that break none of its rules, in the space's order.

    The dtype is the architecture's own unless given; the pool of one that it does not run is empty.
    """
    return tuple(buildable(space_of(arch), arch, dtype, layout))


def buildable(space: GemmSpace, arch: ArchSpec, dtype: str | None = None, layout: str = "rcr") -> Iterator[GemmKernel]:
    """The kernels of any space that break no rule of the architecture, one by one."""
    dtype = dtype or arch.default_dtype
    for kernel in space.narrowed(arch, dtype).kernels(dtype, layout):
        if not judge(kernel, arch):
            yield kernel


def refused_pool(
    arch: ArchSpec, dtype: str | None = None, layout: str = "rcr", space: GemmSpace | None = None
) -> Iterator[RefusedKernel]:
    """The rest of the space with the reasons, one by one: on a GPU there are half a million."""
    for kernel in (space or space_of(arch)).kernels(dtype or arch.default_dtype, layout):
        if reasons := judge(kernel, arch):
            yield RefusedKernel(kernel, reasons)
