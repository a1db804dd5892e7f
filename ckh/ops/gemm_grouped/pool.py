"""Rules, pools and lists of grouped kernels.

Source of the pools: the configuration of AMD's tile engine for grouped GEMMs, which has three pipelines, persistent or
not. `gemm_universal`'s rules hold for every group; those that read M read the greatest common divisor of the groups'.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.kernels.judging import Rules
from ckh.ops.gemm_grouped.kernel import GemmGroupedKernel, parse_grouped_kernel
from ckh.ops.gemm_universal.kernels import spaces
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of
from ckh.ops.gemm_universal.kernels.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.ops.gemm_universal.kernels.pool import bench_space, pools_of
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, PROBLEM_RULES
from ckh.ops.gemm_universal.kernels.search_space import search_space_of, searched_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
    from ckh.ops.gemm_universal.kernels.spaces import GemmSpace

PIPELINES = ("compv3", "compv4", "mem")


@BOOK.rule
def _rows_of_a(arch: ArchSpec, problem: GemmGroupedProblem) -> Iterator[str]:
    if not arch.is_gpu and problem.layout[0] == "c":
        yield f"{arch.name} has no groups of a column-major A"


GROUPED_RULES: Rules[GemmGroupedKernel] = Rules(
    NAME_RULES, COMPLETE_RULES, (*PROBLEM_RULES, _rows_of_a), attrgetter("missing")
)


def grouped_space(arch: ArchSpec) -> GemmSpace:
    """Return the space that an architecture's pool is filtered from."""
    return _narrowed(spaces.space_of(arch))


def _narrowed(space: GemmSpace) -> GemmSpace:
    return replace(space, pipelines=tuple(name for name in space.pipelines if name in PIPELINES))


POOLS = pools_of(GemmGroupedKernel, GROUPED_RULES, parse_grouped_kernel, grouped_space)
BENCH_POOLS = pools_of(
    GemmGroupedKernel, GROUPED_RULES, parse_grouped_kernel, lambda arch: _narrowed(bench_space(arch))
)
SEARCHED = searched_in(lambda dtype, arch: _narrowed(search_space_of(dtype, arch)), GROUPED_RULES, GemmGroupedKernel)
LISTS = lists_of(ListedKernels(GemmGroupedKernel, GROUPED_RULES, parse_grouped_kernel))
