"""Requests of Stream-K matrix products: the options of `gemm_universal` without a split of K."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.gemm_universal.requested import REQUESTED as GEMM
from ckh.requested import Requested

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.gemm_streamk.problem import GemmStreamKProblem

_OPTIONS = tuple(option for option in GEMM.options if option.name != "split_k")


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> GemmStreamKProblem:
    from ckh.ops.gemm_streamk.problem import GemmStreamKProblem

    if missing := [name for name in ("m", "n", "k") if name not in given]:
        raise UsageError(f"a GEMM needs --m, --n and --k: --{missing[0]} is missing", code="missing-option")
    return GemmStreamKProblem(**given, dtype=dtype)


def _words(problem: GemmStreamKProblem) -> str:
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items() if name != "split_k")


_KERNEL = GEMM.kernel.replace("gemm_universal", r"gemm_streamk_(?P<sharing>[a-z]+_\d+)")
REQUESTED = Requested(_OPTIONS, _problem, _words, pool=GEMM.pool, kernel=_KERNEL)
