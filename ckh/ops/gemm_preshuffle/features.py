"""Features of GEMMs with a shuffled B: `gemm_universal`'s, and what waves read of B."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.ops.gemm_preshuffle.problem import OP_TYPE
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL

if TYPE_CHECKING:
    from ckh.features.engine import Columns


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
