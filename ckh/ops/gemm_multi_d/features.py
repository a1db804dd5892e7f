"""Features of GEMMs with further tensors: `gemm_universal`'s, and those of the epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.ops.gemm_multi_d.problem import FUNCTIONS, MATRIX, OP_TYPE, VECTOR
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL

if TYPE_CHECKING:
    from ckh.features.engine import Columns


_CODES = {name: float(code) for code, name in enumerate(FUNCTIONS)}


def _count(c: Columns, kind: str) -> Any:
    return np.char.count(c.raw("ds").astype(str), kind).astype(float)


def _d_elements(c: Columns) -> Any:
    return _count(c, MATRIX) * c["m"] * c["n"] + _count(c, VECTOR) * c["n"]


_FEATURES = (
    Feature("d_matrices", "", lambda c: _count(c, MATRIX)),
    Feature("d_vectors", "", lambda c: _count(c, VECTOR)),
    Feature("d_elements_per_flop", "", lambda c: _d_elements(c) / np.maximum(2.0 * c["m"] * c["n"] * c["k"], 1.0)),
    Feature("function", "category", lambda c: c.codes("function", _CODES, 0.0)),
)

GEMM_MULTI_D = GEMM_UNIVERSAL.extended(OP_TYPE, _FEATURES, categorical=("function",))
