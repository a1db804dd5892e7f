"""Matrix products with further tensors in their epilogue: bias, residual, scale, and an activation.

The operation is `gemm_universal` with another epilogue: what is not stated here is that of `gemm_universal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.ops.gemm_universal import OPTIONS, pool_of_layout, requested_of
from ckh.requested import SizeOption

if TYPE_CHECKING:
    from collections.abc import Mapping


_FUNCTION, _DS = "add", "v"


def _pool(given: Mapping[str, Any]) -> str:
    return f"{pool_of_layout(given)} {given.get('function', _FUNCTION)} {given.get('ds', _DS)}"


REQUESTED = requested_of(
    "ckh.ops.gemm_multi_d.problem:GemmMultiDProblem",
    (
        *(option for option in OPTIONS if option.name != "split_k"),
        SizeOption("function", "Function of the epilogue: add, mul, add_relu, add_gelu, add_silu", _FUNCTION, str),
        SizeOption(
            "ds", "Tensors of the epilogue, a letter each: v for a vector of N, r for an M x N matrix", _DS, str
        ),
    ),
    r"gemm_multi_d_\w+?_\d",
    unsaid="split_k",
    pool=_pool,
)
