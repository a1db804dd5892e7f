"""Features of grouped convolutions beyond AMD's 97.

They say what the 97 leave out: the implicit GEMM of one group in the problem's own direction, how full tiles are on
average, how the tiles fill the compute units, how the tensors compare with the caches, and the kernel's row in the
tables of variants and tiles as one category each. GEMM sizes: `ConvProblem.gemm_sizes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature
from ckh.ops.grouped_conv.kernels.tiles import CONV_TILES
from ckh.ops.grouped_conv.kernels.variants import PIPELINE_VARIANTS
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable

_KIB = 1024
_SIDES = (("m", "gemm_m_per_block"), ("n", "gemm_n_per_block"), ("k", "block_size"))
_UNKNOWN_ROW = -1.0

_VARIANT_ROWS = {
    f"{row.pipeline} {row.scheduler} {int(row.double_smem_buffer)} {int(row.split_image)}": float(index)
    for index, row in enumerate(PIPELINE_VARIANTS)
}
_TILE_ROWS = {row.tile: float(index) for index, row in enumerate(CONV_TILES)}


def _log2(value: Any) -> Any:
    return np.log2(np.maximum(value, 1))


def _by_direction(forward: str, bwd_data: str, bwd_weight: str) -> Callable[[Columns], Any]:
    sizes = {Direction.FORWARD: forward, Direction.BWD_DATA: bwd_data, Direction.BWD_WEIGHT: bwd_weight}

    def formula(c: Columns) -> Any:
        variant = c.raw("variant").astype(str)
        return np.select([variant == direction for direction in sizes], [c[name] for name in sizes.values()])

    return formula


def _average_fill(side: str, tile: str) -> Callable[[Columns], Any]:
    return lambda c: c[f"group_gemm_{side}"] / (c[f"group_tiles_{side}"] * np.maximum(c[tile], 1))


def _group_tiles(side: str, tile: str) -> Callable[[Columns], Any]:
    return lambda c: np.maximum(np.ceil(c[f"group_gemm_{side}"] / np.maximum(c[tile], 1)), 1)


def _kernel_variant(c: Columns) -> Any:
    flags = [np.nan_to_num(np.asarray(c.raw(name), np.float64)).astype(np.int64) for name in ("has_dsb", "has_si")]
    text = c.raw("pipeline").astype(str)
    for part in (c.raw("wave_mode").astype(str), *(flag.astype(str) for flag in flags)):
        text = np.char.add(np.char.add(text, " "), part)
    values, inverse = np.unique(text, return_inverse=True)
    return np.array([_VARIANT_ROWS.get(value, _UNKNOWN_ROW) for value in values])[inverse]


def _tile_shape(c: Columns) -> Any:
    tiles = np.stack(np.broadcast_arrays(*(c[tile] for _, tile in _SIDES)), axis=1).astype(np.int64)
    values, inverse = np.unique(tiles, axis=0, return_inverse=True)
    rows = [_TILE_ROWS.get((int(m), int(n), int(k)), _UNKNOWN_ROW) for m, n, k in values]
    return np.array(rows)[inverse.reshape(-1)]


def _relative_to_cache(elements: str, cache: str) -> Callable[[Columns], Any]:
    def formula(c: Columns) -> Any:
        size = c[elements] * c["bytes_per_element"]
        return np.log2(np.maximum(size, 1) / np.maximum(c[cache] * _KIB, 1))

    return formula


EXTRA_DERIVED: dict[str, Callable[[Columns], Any]] = {
    "taps_c": lambda c: c["filter_volume"] * c["c_per_group"],
    "taps_k": lambda c: c["filter_volume"] * c["k_per_group"],
    "input_pixels": lambda c: c["N"] * c["input_volume"],
    "output_pixels": lambda c: c["N"] * c["output_volume"],
    "group_gemm_m": _by_direction("output_pixels", "input_pixels", "k_per_group"),
    "group_gemm_n": _by_direction("k_per_group", "c_per_group", "taps_c"),
    "group_gemm_k": _by_direction("taps_c", "taps_k", "output_pixels"),
    **{f"group_tiles_{side}": _group_tiles(side, tile) for side, tile in _SIDES},
    "all_tiles": lambda c: c["group_tiles_m"] * c["group_tiles_n"] * c["groups"],
}

EXTRA_FEATURES: tuple[Feature, ...] = (
    *(Feature(f"log2_group_gemm_{s}", "log2", lambda c, s=s: _log2(c[f"group_gemm_{s}"])) for s, _ in _SIDES),  # type: ignore[misc]
    Feature("log2_flops", "log2", lambda c: _log2(c["flops"])),
    Feature("log2_group_flops", "log2", lambda c: _log2(c["flops"] / c["groups"])),
    Feature("filter_to_activation", "", lambda c: c["filter_elements"] / (c["input_elements"] + c["output_elements"])),
    Feature("is_strided", "", lambda c: (c["stride_h"] > 1) | (c["stride_w"] > 1) | (c["stride_d"] > 1)),
    Feature("is_dilated", "", lambda c: (c["dilation_h"] > 1) | (c["dilation_w"] > 1) | (c["dilation_d"] > 1)),
    Feature("is_padded", "", lambda c: (c["pad_h"] > 0) | (c["pad_w"] > 0) | (c["pad_d"] > 0)),
    Feature("contiguous_run", "elements", lambda c: c["c_per_group"] * np.where(c["G"] == 1, c["X"], 1)),
    Feature("log2_input_over_l2", "log2", _relative_to_cache("input_elements", "hw_l2_cache_kb")),
    Feature("log2_filter_over_l2", "log2", _relative_to_cache("filter_elements", "hw_l2_cache_kb")),
    Feature("log2_output_over_l2", "log2", _relative_to_cache("output_elements", "hw_l2_cache_kb")),
    Feature("kernel_variant", "category", _kernel_variant),
    Feature("tile_shape", "category", _tile_shape),
    *(Feature(f"group_tiles_{side}", "tiles", lambda c, s=side: c[f"group_tiles_{s}"]) for side, _ in _SIDES),  # type: ignore[misc]
    *(Feature(f"average_fill_{side}", "", _average_fill(side, tile)) for side, tile in _SIDES),
    Feature(
        "average_fill",
        "",
        lambda c: np.prod(np.broadcast_arrays(*(_average_fill(side, tile)(c) for side, tile in _SIDES)), axis=0),
    ),
    Feature("log2_all_tiles", "log2", lambda c: _log2(c["all_tiles"])),
    Feature(
        "last_wave_fill",
        "",
        lambda c: (
            c["all_tiles"] / (np.ceil(c["all_tiles"] / np.maximum(c["hw_num_cus"], 1)) * np.maximum(c["hw_num_cus"], 1))
        ),
    ),
)
