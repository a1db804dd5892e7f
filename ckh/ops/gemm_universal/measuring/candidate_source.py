"""Where the kernels of a run come from: an architecture's pool or a registry, filtered."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.bench.planning.candidates import PoolSource, registry_of, wanted_by
from ckh.errors import UsageError
from ckh.ops import operation
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import BENCH_POOLS, POOLS
from ckh.ops.gemm_universal.problem import OP_TYPE, GemmProblem

if TYPE_CHECKING:
    from ckh.data.settings import Settings


def candidate_source(settings: Settings) -> PoolSource[GemmProblem, GemmKernel]:
    """Candidates from a run's settings.

    Raises:
        UsageError: a setting is malformed, or one of convolutions is given.
        DataError: the registry cannot be read.
    """
    if option := settings.first_given("rule_set", "split_k"):
        raise UsageError(f"{OP_TYPE} has no {option}", "it is for convolutions", code="inapplicable-option")
    return PoolSource(
        BENCH_POOLS if settings.filter is None else POOLS,
        attrgetter("dtype", "layout"),
        wanted_by(settings.filter, GemmKernel),
        registry_of(settings.registry, operation(OP_TYPE)),
        settings.registry or "the pool",
    )
