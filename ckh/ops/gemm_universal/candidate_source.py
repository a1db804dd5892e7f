"""Where the kernels of a run come from: an architecture's pool, filtered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.kernels.filter import parse_filter
from ckh.kernels.judging import ProblemRules
from ckh.kernels.table import KernelTable
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.pool import gemm_pool, refused_pool
from ckh.ops.gemm_universal.problem import OP_TYPE
from ckh.ops.gemm_universal.validity import GEMM_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.settings import Settings
    from ckh.ops.gemm_universal.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class PoolCandidates:
    """The pool of an architecture, filtered."""

    wants: Callable[[GemmKernel], bool] = lambda _: True
    origin = "the pool"

    def group(self, problem: GemmProblem) -> tuple[Any, ...]:
        """Dtype and layout."""
        return problem.dtype, problem.layout

    def of(self, dtype: str, layout: str, arch: ArchSpec) -> tuple[tuple[GemmKernel, ...], tuple[Any, ...]]:
        """The pool's kernels; of a GPU, those that cannot be built are too many to list."""
        kernels = tuple(filter(self.wants, gemm_pool(arch, dtype, layout)))
        if arch.is_gpu:
            return kernels, ()
        return kernels, tuple(one for one in refused_pool(arch, dtype, layout) if self.wants(one.kernel))

    def problem_rules(self, kernels: Sequence[GemmKernel], arch: ArchSpec) -> ProblemRules:
        """What decides which of some kernels apply to a problem."""
        return ProblemRules(GEMM_RULES.problem, KernelTable.of(GemmKernel, kernels), arch)


def candidate_source(settings: Settings) -> PoolCandidates:
    """Candidates from a run's settings.

    Raises:
        UsageError: a setting is malformed, or one of convolutions is given.
    """
    if option := settings.first_given("rule_set", "registry", "split_k"):
        raise UsageError(f"{OP_TYPE} has no {option}", "it is for convolutions")
    return PoolCandidates() if settings.filter is None else PoolCandidates(parse_filter(settings.filter, GemmKernel))
