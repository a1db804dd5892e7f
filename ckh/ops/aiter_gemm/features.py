"""Features of AITER's matrix products and kernels, each declared once for the feature engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine, fill, log2_of, pieces, ratio, raw
from ckh.ops.aiter_gemm.kernel import NUMBERS
from ckh.ops.aiter_gemm.problem import FAMILIES, GROUPED, GROUPS, IDENTITY, LIBRARIES, OP_TYPE
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    Formula = Callable[[Columns], Any]

_UNKNOWN = -1.0
_CODES: dict[str, dict[str, float]] = {
    "family": {name: float(code) for code, name in enumerate(FAMILIES)},
    "library": {name: float(code) for code, name in enumerate(LIBRARIES)},
    "dtype": {"fp8": 0.0, "int8": 1.0, "pk_fp4": 2.0, "bf16": 3.0},
}
_IS_GROUPED = dict.fromkeys(GROUPED, 1.0)
_GRIDS = (32, 64, 128, 256)  # widths of tiles whose number along N is a feature
_MOST_DIVISOR = 4096.0


def _code(name: str) -> Formula:
    return lambda c: c.codes(name, _CODES[name], _UNKNOWN)


def _divisor(name: str) -> Formula:
    """Base-2 logarithm of the largest power of two that divides a size."""

    def formula(c: Columns) -> Any:
        whole = c[name].astype(np.int64)
        return np.log2(np.minimum(whole & -whole, _MOST_DIVISOR))

    return formula


def _products(c: Columns) -> Any:
    """Products of a launch: 1 unless batched or grouped."""
    return np.maximum(np.where(np.isnan(c[GROUPS]), 0.0, c[GROUPS]), 1)


def _rows_of_product(c: Columns) -> Any:
    """Rows of each product: of grouped ones the mean, as only their sum is known."""
    return np.where(c.codes("family", _IS_GROUPED, 0.0) > 0, c["m"] / c["products"], c["m"])


def _grid(width: int) -> Formula:
    return lambda c: np.ceil(c["n"] / width) / c["cus"]


# Quantities shared by several features. `split_k` is a power of two.
_DERIVED: dict[str, Formula] = {
    "cus": lambda c: np.maximum(c["num_cus"], 1),
    "parts": lambda c: np.exp2(c["split_k"]),
    "k_of_part": lambda c: c["k"] / c["parts"],
    "products": _products,
    "rows": _rows_of_product,
    "tiles_m": pieces("rows", "tile_m"),
    "tiles_n": pieces("n", "tile_n"),
    "tiles": lambda c: c["products"] * c["tiles_m"] * c["tiles_n"],
    "workgroups": lambda c: c["tiles"] * c["parts"],
    "waves": lambda c: c["workgroups"] / c["cus"],
    "rounds": lambda c: np.ceil(c["waves"]),
    "sides": lambda c: c["tile_m"] + c["tile_n"],
    "area": lambda c: c["tile_m"] * c["tile_n"],
    "weight": lambda c: c["n"] * c["k"],
    "element_bytes": lambda c: c.codes("dtype", DTYPE_BYTES, _UNKNOWN),
}

_PROBLEM_FEATURES = (
    *(Feature(name, "category", _code(name)) for name in _CODES),
    Feature("m", "rows", raw("m")),
    Feature("num_cus", "CUs", raw("num_cus")),
    *(Feature(f"log2_{name}", "log2", log2_of(name)) for name in ("m", "n", "k", "weight")),
    Feature("log2_n_by_k", "log2", lambda c: np.log2(c["n"] / c["k"])),
    Feature("log2_n_by_cu", "log2", lambda c: np.log2(c["n"] / c["cus"])),
    *(Feature(f"n_{width}_by_cu", "tiles/CU", _grid(width)) for width in _GRIDS),
    *(Feature(f"divisor_{name}", "log2", _divisor(name)) for name in ("m", "n", "k")),
    Feature("log2_products", "log2", log2_of("products")),
    Feature("log2_rows_of_product", "log2", log2_of("rows")),
)
_KERNEL_FEATURES = (
    *(Feature(name, "", raw(name)) for name in NUMBERS),
    Feature("log2_area", "log2", log2_of("area")),
    Feature("lds_bytes", "bytes", lambda c: c["sides"] * c["tile_k"] * c["element_bytes"]),
    Feature("log2_tile_m_by_n", "log2", lambda c: np.log2(c["tile_m"] / c["tile_n"])),
)
_BOTH_FEATURES = (
    Feature("log2_tiles", "log2", log2_of("tiles")),
    Feature("log2_workgroups", "log2", log2_of("workgroups")),
    Feature("waves", "workgroups/CU", raw("waves")),
    Feature("last_round_fill", "", ratio("waves", "rounds")),
    Feature("busy_cus", "", lambda c: np.minimum(c["waves"], 1)),
    Feature("fill_m", "", fill("rows", "tile_m")),
    Feature("fill_n", "", fill("n", "tile_n")),
    Feature("fill_k", "", fill("k_of_part", "tile_k")),
    Feature("steps_k", "", pieces("k_of_part", "tile_k")),
    Feature("m_by_tile", "", lambda c: c["rows"] / c["tile_m"]),
    Feature("n_by_tile", "", lambda c: c["n"] / c["tile_n"]),
    Feature("log2_work_of_cu", "log2", lambda c: np.log2(c["rounds"] * c["area"] * c["k_of_part"])),
    Feature("log2_loads_of_cu", "log2", lambda c: np.log2(c["rounds"] * c["sides"] * c["k_of_part"])),
    Feature("log2_loads", "log2", lambda c: np.log2(c["tiles"] * c["sides"] * c["k"])),
)

AITER_GEMM = FeatureEngine(
    op_type=OP_TYPE,
    features=(*_PROBLEM_FEATURES, *_KERNEL_FEATURES, *_BOTH_FEATURES),
    categorical=(),
    derived=_DERIVED,
    defaults={GROUPS: 0.0},
    kernel_columns=frozenset(NUMBERS),
)

# Raw columns that the features read.
INPUT_COLUMNS: tuple[str, ...] = (*IDENTITY, *NUMBERS)
