"""Pools: the candidate GEMM kernels of an architecture."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.kernels.pools import Pools
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.names import kernel_name, parse_kernel_name
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.kernels.spaces import GPU_BENCH, GemmSpace, space_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.kernels.table import Axis, KernelTable

K = TypeVar("K", bound=GemmKernel)


def gemm_pool(arch: ArchSpec, dtype: str | None = None, layout: str = "rcr") -> tuple[GemmKernel, ...]:
    """Return the kernels of the architecture's space (`spaces.space_of`) that pass all rules, in the space's order.

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
    own: Axis | None = None,
) -> Pools[K]:
    """Return the pools of an operation, by the group of its kernels.

    Args:
        kind: the class of its kernels.
        rules: their rules; those of architectures are `GEMM_RULES`'.
        parse: parses a kernel name.
        space: the space that an architecture's pool is filtered from.
        own: fields of the class that a problem leaves open, and the combinations of their values.
    """

    def table(arch: ArchSpec, *group: Any) -> KernelTable[K]:
        """Return the space; for a GPU, which has far more invalid combinations than kernels, the narrowed space."""
        result, fields = space(arch), dict(zip(kind.group_fields, group, strict=True))
        plain = buildable(result, arch, kind=kind, **fields) if arch.is_gpu else result.table(kind=kind, **fields)
        return plain if own is None else plain.crossed(*own)

    return Pools(kind, rules, table, attrgetter(*kind.group_fields), parse, kernel_name)


def bench_space(arch: ArchSpec) -> GemmSpace:
    """Return the space of a bench run without a filter."""
    return GPU_BENCH if arch.is_gpu else space_of(arch)


POOLS = pools_of(GemmKernel, GEMM_RULES, parse_kernel_name, space_of)
BENCH_POOLS = pools_of(GemmKernel, GEMM_RULES, parse_kernel_name, bench_space)
