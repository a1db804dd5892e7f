"""Record of the operation `gemm_preshuffle`: that of `gemm_universal`, for each order of B."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.ops.gemm_preshuffle.kernel_rules import FAMILY, preshuffle_rule_key
from ckh.ops.gemm_preshuffle.problem import OP_TYPE, GemmPreshuffleProblem
from ckh.ops.gemm_universal.derived import GEMM, derived
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL

if TYPE_CHECKING:
    from ckh.features.engine import Columns
    from ckh.ops.gemm_preshuffle.kernel_rules import GemmPreshuffleKernel


def _a_tile_bytes(c: Columns) -> Any:
    """Bytes of LDS: B goes from memory to registers, and A has two buffers."""
    return 2 * c["tile_m"] * c["tile_k"] * c["bytes_per_element"]


def _b_register_bytes(c: Columns) -> Any:
    """Bytes of B that a lane holds: two tiles along K."""
    return 2 * c["tile_n"] * c["tile_k"] * c["bytes_per_element"] / np.maximum(c["wave_n"] * c["hw_wavefront_size"], 1)


_FEATURES = (
    Feature("permutes_n", "", lambda c: np.char.count(c.raw("b_order").astype(str), "p").astype(float)),
    Feature("a_lds_bytes", "bytes", _a_tile_bytes),
    Feature("b_register_bytes", "bytes", _b_register_bytes),
)

GEMM_PRESHUFFLE = GEMM_UNIVERSAL.extended(OP_TYPE, _FEATURES)

_WEIGHT_OF_ORDER = 4.0
_DERIVED = derived(
    __name__,
    "matrix products with a B that is shuffled beforehand",
    GemmPreshuffleProblem,
    FAMILY,
    GEMM_PRESHUFFLE,
    {"b_order": "order of B: columns of an instruction x bytes that a lane reads"},
    table_sizes=("m", "n", "k"),  # a kernel states the order of B
)


def _mismatch(kernel: GemmPreshuffleKernel, problem: GemmPreshuffleProblem) -> str:
    reason = str(GEMM.kernels.mismatch(kernel, problem))
    if not reason and kernel.is_complete and kernel.b_order != problem.b_order:
        return f"a kernel that reads B in the order {kernel.b_order} on {problem.canonical()}"
    return reason


def _place(problem: GemmPreshuffleProblem) -> list[float]:
    """`gemm_universal`'s point, and the order of B."""
    order = problem.stored_order
    of_order = (order.columns / 16, order.bytes / 16, order.permutes_n)
    return [*GEMM.problems.place(problem), *(_WEIGHT_OF_ORDER * part for part in of_order)]


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        slices={name: tests for name, tests in GEMM.problems.slices.items() if name != "layout"},
        place=_place,
    ),
    kernels=replace(
        _DERIVED.kernels,
        mismatch=_mismatch,
        key_of=preshuffle_rule_key,
    ),
)
