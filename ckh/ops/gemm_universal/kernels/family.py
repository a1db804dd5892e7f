"""The kernels of an operation that is derived from `gemm_universal`, declared once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import bench_space, pools_of, space_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.kernels.lists import ListFormat
    from ckh.kernels.pools import Pools
    from ckh.kernels.table import Axis
    from ckh.ops.gemm_universal.kernels.pool import GemmSpace
    from ckh.search.product import Searched

K = TypeVar("K", bound=GemmKernel)


@dataclass(frozen=True, eq=False)
class KernelFamily(Generic[K]):
    """Kernels of one class with some of the pipelines: their pools, what a search proposes, and AMD's lists follow."""

    kind: type[K]
    rules: Rules[K]
    parse: Callable[[str], K]
    """Parses a kernel's name."""
    pipelines: tuple[str, ...]
    are_persistent: bool = True
    """Whether kernels may be persistent."""
    own: Axis = ((), [()])
    """Fields that a problem leaves open, and the combinations of their values."""
    listed: Axis = ((), [()])
    """The same, for a configuration of the tile engine."""
    are_listed: bool = True
    """Whether AMD's tools have lists of them."""

    def narrowed(self, space: GemmSpace) -> GemmSpace:
        """Return the part of `gemm_universal`'s space that has these kernels."""
        persistent = space.persistent if self.are_persistent else (False,)
        pipelines = tuple(name for name in space.pipelines if name in self.pipelines)
        return replace(space, pipelines=pipelines, persistent=persistent)

    def space(self, arch: ArchSpec) -> GemmSpace:
        """Return the space that an architecture's pool is filtered from."""
        return self.narrowed(space_of(arch))

    @cached_property
    def pools(self) -> Pools[K]:
        """The pools."""
        return pools_of(self.kind, self.rules, self.parse, self.space, self.own)

    @cached_property
    def bench_pools(self) -> Pools[K]:
        """The pools of a bench run without a filter."""
        return pools_of(self.kind, self.rules, self.parse, lambda arch: self.narrowed(bench_space(arch)), self.own)

    @cached_property
    def searched(self) -> Searched[Any]:
        """The kernels that a search may propose."""
        from ckh.ops.gemm_universal.kernels.search_space import search_space_of, searched_in

        def space(dtype: str, arch: ArchSpec) -> GemmSpace:
            return self.narrowed(search_space_of(dtype, arch))

        return searched_in(space, self.rules, self.kind, self.own)

    @cached_property
    def lists(self) -> ListFormat:
        """AMD's file formats for lists of these kernels."""
        from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of

        return lists_of(ListedKernels(self.kind, self.rules, self.parse, left_open=self.listed))
