"""Where the kernels of a run come from: an architecture's pool, filtered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.kernels.filter import parse_filter
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.pool import gemm_pool, refused_pool
from ckh.ops.gemm_universal.problem import OP_TYPE
from ckh.ops.gemm_universal.validity import problem_reasons

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def problem_reasons(self, kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> list[str]:
        """Why a kernel does not apply to a problem."""
        return list(problem_reasons(kernel, arch, problem))


def candidate_source(settings: Settings) -> PoolCandidates:
    """Candidates from a run's settings.

    Raises:
        UsageError: a setting is malformed, or one of convolutions is given.
    """
    if option := settings.first_given("rule_set", "registry", "split_k"):
        raise UsageError(f"{OP_TYPE} has no {option}", "it is for convolutions")
    return PoolCandidates() if settings.filter is None else PoolCandidates(parse_filter(settings.filter, GemmKernel))
