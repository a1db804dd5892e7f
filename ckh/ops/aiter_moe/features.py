"""Features of mixtures of experts and their kernels, each declared once for the feature engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine, log2_of, pieces, raw
from ckh.ops.aiter_moe.kernel import NUMBERS
from ckh.ops.aiter_moe.problem import IDENTITY, KINDS, OP_TYPE, QUANTS
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    Formula = Callable[[Columns], Any]

_UNKNOWN = -1.0
_GATES = 2  # halves of the first product
_WEIGHT_BYTES = {quant: DTYPE_BYTES[dtype] for quant, dtype in QUANTS.items()}


def _code(name: str) -> Formula:
    table = {value: float(code) for code, value in enumerate(KINDS[name])}
    return lambda c: c.codes(name, table, _UNKNOWN)


def _active(c: Columns) -> Any:
    """Expected number of experts that some token chooses, for random choices."""
    return c["experts"] * (1 - np.exp2(c["choices"] * np.log2(np.maximum(1 - 1 / c["experts"], 1e-9))))


def _tiles(product: int) -> Formula:
    """Number of tiles of a product, 0 without a kernel for it."""

    def formula(c: Columns) -> Any:
        tile_n = c[f"tile_n{product}"]
        return np.where(tile_n > 0, c["row_tiles"] * np.ceil(c[f"n{product}"] / np.maximum(tile_n, 1)), 0)

    return formula


def _work(product: int) -> Formula:
    """Work of a compute unit in its waves of tiles of a product."""
    return lambda c: (
        np.ceil(c[f"waves{product}"]) * c["block_m"] * np.maximum(c[f"tile_n{product}"], 1) * c[f"k{product}"]
    )


def _loads(product: int) -> Formula:
    return lambda c: np.ceil(c[f"waves{product}"]) * (c["block_m"] + c[f"tile_n{product}"]) * c[f"k{product}"]


def _of_products(name: str, formula: Callable[[int], Formula]) -> dict[str, Formula]:
    return {f"{name}{product}": formula(product) for product in (1, 2)}


# Quantities shared by several features. Tokens are sorted by expert, in tiles of `block_m` rows.
_DERIVED: dict[str, Formula] = {
    "cus": lambda c: np.maximum(c["num_cus"], 1),
    "choices": lambda c: c["tokens"] * c["topk"],
    "active": _active,
    "rows_of_expert": lambda c: c["choices"] / c["active"],
    "row_tiles": lambda c: c["active"] * np.ceil(c["rows_of_expert"] / np.maximum(c["block_m"], 1)),
    "n1": lambda c: _GATES * c["inter_dim"],
    "k1": lambda c: c["model_dim"],
    "n2": lambda c: c["model_dim"],
    "k2": lambda c: c["inter_dim"],
    **_of_products("tiles", _tiles),
    **_of_products("waves", lambda item: lambda c: c[f"tiles{item}"] / c["cus"]),
    **_of_products("work", _work),
    **_of_products("loads", _loads),
    "weight_bytes": lambda c: c.codes("quant", _WEIGHT_BYTES, _UNKNOWN),
    "weight_read": lambda c: c["active"] * c["model_dim"] * c["inter_dim"] * c["weight_bytes"],
}

_PROBLEM_FEATURES = (
    *(Feature(name, "category", _code(name)) for name in KINDS),
    *(
        Feature(f"log2_{name}", "log2", log2_of(name))
        for name in ("tokens", "model_dim", "inter_dim", "experts", "choices", "active", "weight_read")
    ),
    Feature("topk", "", raw("topk")),
    Feature("num_cus", "CUs", raw("num_cus")),
    Feature("rows_of_expert", "rows", raw("rows_of_expert")),
)
_KERNEL_FEATURES = tuple(Feature(name, "", raw(name)) for name in NUMBERS)
_BOTH_FEATURES = (
    Feature("fill_of_tile", "", lambda c: c["rows_of_expert"] / np.maximum(c["block_m"], 1)),
    Feature("log2_row_tiles", "log2", log2_of("row_tiles")),
    *(
        Feature(f"{name}{product}", unit, formula(product))
        for product in (1, 2)
        for name, unit, formula in (
            ("waves", "workgroups/CU", lambda item: raw(f"waves{item}")),
            (
                "last_round_fill",
                "",
                lambda item: lambda c: c[f"waves{item}"] / np.maximum(np.ceil(c[f"waves{item}"]), 1),
            ),
            ("log2_work_of_cu", "log2", lambda item: log2_of(f"work{item}")),
            ("log2_loads_of_cu", "log2", lambda item: log2_of(f"loads{item}")),
            ("steps_k", "", lambda item: pieces(f"k{item}", f"tile_k{item}")),
            ("n_tiles", "", lambda item: pieces(f"n{item}", f"tile_n{item}")),
        )
    ),
    Feature("log2_work_of_both", "log2", lambda c: np.log2(np.maximum(c["work1"] + c["work2"], 1))),
)

AITER_MOE = FeatureEngine(
    op_type=OP_TYPE,
    features=(*_PROBLEM_FEATURES, *_KERNEL_FEATURES, *_BOTH_FEATURES),
    categorical=(),
    derived=_DERIVED,
    defaults={},
    kernel_columns=frozenset(NUMBERS),
)

# Raw columns that the features read.
INPUT_COLUMNS: tuple[str, ...] = (*IDENTITY, *NUMBERS)
