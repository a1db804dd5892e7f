"""Requests of batched matrix products: those of one matrix product, with a batch and strides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.gemm_universal.requested import REQUESTED as GEMM
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.gemm_batched.problem import GemmBatchedProblem

_REQUIRED = ("batch", "m", "n", "k")
_OPTIONS = (
    SizeOption("batch", "Products of a batch"),
    *GEMM.options,
    *(SizeOption(f"ld{one}", f"Distance of the lines of {one.upper()}, in elements", "dense") for one in "abc"),
    *(
        SizeOption(f"batch_stride_{one}", f"Distance of the matrices {one.upper()} of a batch, in elements", "dense")
        for one in "abc"
    ),
)


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> GemmBatchedProblem:
    from ckh.ops.gemm_batched.problem import GemmBatchedProblem

    if missing := [name for name in _REQUIRED if name not in given]:
        raise UsageError(
            f"a batched GEMM needs --batch, --m, --n and --k: --{missing[0]} is missing", code="missing-option"
        )
    return GemmBatchedProblem(**given, dtype=dtype)


def _words(problem: GemmBatchedProblem) -> str:
    """Format all fields but distances that are dense."""
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items() if value)


_KERNEL = GEMM.kernel.replace("gemm_universal", "gemm_batched")
REQUESTED = Requested(_OPTIONS, _problem, _words, pool=GEMM.pool, kernel=_KERNEL)
