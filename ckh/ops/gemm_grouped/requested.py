"""Requests of grouped matrix products: those of one matrix product, with the M of each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.gemm_universal.requested import REQUESTED as GEMM
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.gemm_grouped.problem import GemmGroupedProblem

_REQUIRED = ("ms", "n", "k")
_OPTIONS = (
    SizeOption("ms", "M of the groups, each with the number of such groups, e.g. 512+64x8", kind=str),
    *(option for option in GEMM.options if option.name != "m"),
)


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> GemmGroupedProblem:
    from ckh.ops.gemm_grouped.problem import GemmGroupedProblem

    if missing := [name for name in _REQUIRED if name not in given]:
        raise UsageError(f"a grouped GEMM needs --ms, --n and --k: --{missing[0]} is missing", code="missing-option")
    return GemmGroupedProblem(**given, dtype=dtype)


def _words(problem: GemmGroupedProblem) -> str:
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items() if name != "m")


_KERNEL = GEMM.kernel.replace("gemm_universal", "gemm_grouped")
REQUESTED = Requested(_OPTIONS, _problem, _words, pool=GEMM.pool, kernel=_KERNEL)
