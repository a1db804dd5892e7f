"""Requests of matrix products with further tensors in their epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.gemm_universal.requested import REQUESTED as GEMM
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem

_FUNCTION, _DS = "add", "v"
_OPTIONS = (
    *(option for option in GEMM.options if option.name != "split_k"),
    SizeOption("function", "Function of the epilogue: add, mul, add_relu, add_gelu, add_silu", _FUNCTION, str),
    SizeOption("ds", "Tensors of the epilogue, a letter each: v for a vector of N, r for an M x N matrix", _DS, str),
)


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> GemmMultiDProblem:
    from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem

    if missing := [name for name in ("m", "n", "k") if name not in given]:
        raise UsageError(f"a GEMM needs --m, --n and --k: --{missing[0]} is missing", code="missing-option")
    return GemmMultiDProblem(**given, dtype=dtype)


def _words(problem: GemmMultiDProblem) -> str:
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items() if name != "split_k")


def _pool(given: Mapping[str, Any]) -> str:
    return f"{GEMM.pool(given)} {given.get('function', _FUNCTION)} {len(given.get('ds', _DS))}"


_KERNEL = GEMM.kernel.replace("gemm_universal", r"gemm_multi_d_\w+?_\d")
REQUESTED = Requested(_OPTIONS, _problem, _words, pool=_pool, kernel=_KERNEL)
