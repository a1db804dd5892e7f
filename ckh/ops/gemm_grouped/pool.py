"""Kernels of grouped GEMMs: names, rules, pools and lists.

Names are those of `GemmKernel` that begin with `gemm_grouped_`, as in CK Tile; those of AMD's tile engine, which begin
with `grouped_gemm_`, are parsed too.

Source of the pools: the configuration of AMD's tile engine for grouped GEMMs, which has three pipelines, persistent or
not. `gemm_universal`'s rules hold for every group; those that read M read the greatest common divisor of the groups'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.gemm_grouped.problem import OP_TYPE
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of
from ckh.ops.gemm_universal.kernels.names import parser_of
from ckh.ops.gemm_universal.kernels.pool import pools_of
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, rules_with
from ckh.ops.gemm_universal.kernels.search_space import NarrowedSpaces, searched_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.ops.gemm_grouped.problem import GemmGroupedProblem


@dataclass(frozen=True, slots=True, order=True)
class GemmGroupedKernel(GemmKernel):
    """A kernel that computes matrix products with separate M."""

    op_type = OP_TYPE

    @property
    def chooses_loop(self) -> bool:
        """True if one GPU function has the loops of all numbers of steps, and chooses among them when it runs."""
        return bool(self.persistent) or self.pipeline in DOUBLE_SMEM_PIPELINES


parse_grouped_kernel = parser_of(GemmGroupedKernel, r"(?:gemm_grouped|grouped_gemm)")

SPACES = NarrowedSpaces(("compv3", "compv4", "mem"))


@BOOK.rule
def _rows_of_a(arch: ArchSpec, problem: GemmGroupedProblem) -> Iterator[str]:
    if not arch.is_gpu and problem.layout[0] == "c":
        yield f"{arch.name} has no groups of a column-major A"


GROUPED_RULES: Rules[GemmGroupedKernel] = rules_with(problem=(_rows_of_a,))
POOLS = pools_of(GemmGroupedKernel, GROUPED_RULES, parse_grouped_kernel, SPACES.pool)
BENCH_POOLS = pools_of(GemmGroupedKernel, GROUPED_RULES, parse_grouped_kernel, SPACES.bench)
SEARCHED = searched_in(SPACES.search, GROUPED_RULES, GemmGroupedKernel)
LISTS = lists_of(ListedKernels(GemmGroupedKernel, GROUPED_RULES, parse_grouped_kernel))
