"""Record of the operation `gemm_streamk`: that of `gemm_universal`, with two fields of kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.ops.base import lazily
from ckh.ops.gemm_streamk.pool import POOLS, REDUCTIONS
from ckh.ops.gemm_streamk.problem import OP_TYPE, GemmStreamKProblem
from ckh.ops.gemm_universal.derived import derived
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.schema import Column

if TYPE_CHECKING:
    from ckh.features.engine import Columns

_CODES = {name: float(code) for code, name in enumerate(REDUCTIONS)}


def _grid(c: Columns) -> Any:
    """Blocks that share tiles; where a compute unit decides how many it holds, one each."""
    return np.maximum(c["hw_num_cus"], 1) * np.maximum(c["blocks_per_cu"], 1)


def _shared_tiles(c: Columns) -> Any:
    """Tiles that blocks share: those of the last, incomplete turn of the grid and of the one before; all or none."""
    tiles, grid = c["total_output_tiles"], c["streamk_grid"]
    rest = np.mod(tiles, grid)
    shared = np.where(tiles > grid, grid + rest, tiles)
    return np.where((rest > 0) & (shared * c["num_tiles_k"] >= grid), shared, 0.0)


def _steps_per_block(c: Columns) -> Any:
    return c["streamk_tiles"] * c["num_tiles_k"] / c["streamk_grid"]


def _parts_per_tile(c: Columns) -> Any:
    """Blocks that share a tile, about."""
    return np.where(c["streamk_steps"] > 0, c["num_tiles_k"] / np.maximum(c["streamk_steps"], 1), 1.0)


_FEATURES = (
    Feature("reduction", "category", lambda c: c.codes("reduction", _CODES, 0.0)),
    Feature("blocks_per_cu", "", lambda c: c["blocks_per_cu"]),
    Feature("streamk_tiles", "tiles", lambda c: c["streamk_tiles"]),
    Feature("streamk_share", "", lambda c: c["streamk_tiles"] / np.maximum(c["total_output_tiles"], 1)),
    Feature("streamk_steps", "steps", lambda c: c["streamk_steps"]),
    Feature("streamk_parts", "", _parts_per_tile),
)

GEMM_STREAMK = GEMM_UNIVERSAL.extended(
    OP_TYPE,
    _FEATURES,
    categorical=("reduction",),
    derived={"streamk_grid": _grid, "streamk_tiles": _shared_tiles, "streamk_steps": _steps_per_block},
    kernel_columns=frozenset({"reduction", "blocks_per_cu"}),
)

_DERIVED = derived(
    __name__,
    "matrix products whose blocks share tiles",
    GemmStreamKProblem,
    POOLS,
    GEMM_STREAMK,
    {},
    own=(
        Column("reduction", "string", "", "how partial sums become a result: atomic, reduction"),
        Column("blocks_per_cu", "int64", "", "blocks per compute unit that share tiles, 0: as many as it holds"),
    ),
    table_sizes=("m", "n", "k"),
)
OPERATION = replace(_DERIVED, kernels=replace(_DERIVED.kernels, lists=lazily("ckh.ops.gemm_streamk.pool:LISTS")))
