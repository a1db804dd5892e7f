"""Requests of matrix products with a shuffled B."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.gemm_universal.requested import REQUESTED as GEMM
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem

_ORDER = "16x16"
_OPTIONS = (
    *(option for option in GEMM.options if option.name in ("m", "n", "k")),
    SizeOption("b_order", "Order of a shuffled B: columns of an instruction x bytes that a lane reads", _ORDER, str),
)


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> GemmPreshuffleProblem:
    from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem

    if missing := [name for name in ("m", "n", "k") if name not in given]:
        raise UsageError(f"a GEMM needs --m, --n and --k: --{missing[0]} is missing", code="missing-option")
    return GemmPreshuffleProblem(**given, dtype=dtype)


def _words(problem: GemmPreshuffleProblem) -> str:
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items() if name != "split_k")


def _pool(given: Mapping[str, Any]) -> str:
    return str(given.get("b_order", _ORDER))


_REFUSED = {
    "layout": ("B is shuffled, A and C are row-major", "omit it"),
    "split_k": ("K of a shuffled B is not split", "omit it"),
}
_KERNEL = GEMM.kernel.replace("gemm_universal", "gemm_preshuffle(?:_permute_n)?")
REQUESTED = Requested(_OPTIONS, _problem, _words, pool=_pool, refused=_REFUSED, kernel=_KERNEL)
