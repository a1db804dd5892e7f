"""Features of grouped convolutions: AMD's 97 (encoding version 0), and ckh's additional ones.

The 97 equal AMD's `GroupedConvFeatureEngine` value by value, including its quirks: an unknown pipeline is encoded as
compv3, `tile_eff_*` is the utilization of the last tile, `gemm_n_output` is all of K whatever the groups, and the GEMM
sizes are those of the forward pass in every direction.

The additional features describe what the 97 omit: the implicit GEMM of one group in the problem's own direction,
average tile utilization, distribution of tiles over compute units, tensor sizes relative to the caches, and the
kernel's entry in the tables of variants and tiles as one category each. GEMM sizes: `ConvProblem.gemm_sizes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine, fill, log2_of, pieces, ratio, raw
from ckh.kernels.pipelines import PIPELINE_CODES
from ckh.ops.grouped_conv.kernels.variants import CONV_TILES, PIPELINE_VARIANTS
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.problems import DTYPE_BYTES, Direction
from ckh.schema import HARDWARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.features.engine import Columns


ESTIMATED = ("group_gemm_m", "group_gemm_n", "group_gemm_k", "groups", "bytes")
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
    variants, inverse = np.unique(text, return_inverse=True)
    return np.array([_VARIANT_ROWS.get(variant, _UNKNOWN_ROW) for variant in variants])[inverse]


def _tile_shape(c: Columns) -> Any:
    tiles = np.stack(np.broadcast_arrays(*(c[tile] for _, tile in _SIDES)), axis=1).astype(np.int64)
    shapes, inverse = np.unique(tiles, axis=0, return_inverse=True)
    rows = [_TILE_ROWS.get((int(m), int(n), int(k)), _UNKNOWN_ROW) for m, n, k in shapes]
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
    Feature("last_wave_fill", "", fill("all_tiles", "hw_num_cus")),
)


_UNKNOWN_PIPELINE = 0.0
_UNKNOWN_DTYPE_BYTES = 2.0
_COMPV4_LDS_BYTES = 32768.0
_SMALL_GROUP = 16
_SMALL_BATCH = 8
_BASE_DEFAULTS: dict[str, float | str] = {
    **dict.fromkeys(("Di", "Z", "stride_d", "dilation_d", "dilation_h", "dilation_w"), 1),
    **dict.fromkeys(("pad_d", "has_dsb", "has_si"), 0),
    "dtype": "bf16",
    "wave_mode": "intrawave",
}


def _output(size: str, taps: str, axis: str) -> Callable[[Columns], Any]:
    def formula(c: Columns) -> Any:
        effective = (c[taps] - 1) * c[f"dilation_{axis}"] + 1
        return (c[size] + 2 * c[f"pad_{axis}"] - effective) // c[f"stride_{axis}"] + 1

    return formula


def _volume(d: str, h: str, w: str) -> Callable[[Columns], Any]:
    return lambda c: np.where(c["is_3d"], c[d], 1) * c[h] * c[w]


def _flag(name: str) -> Callable[[Columns], Any]:
    return lambda c: np.nan_to_num(np.asarray(c.raw(name), dtype=np.float64))


def _last_tile_fill(size: str, tile: str) -> Callable[[Columns], Any]:
    def formula(c: Columns) -> Any:
        rest = np.mod(c[size], np.maximum(c[tile], 1))
        return np.where(rest > 0, rest / np.maximum(c[tile], 1), 1.0)

    return formula


def _one_hot(pipeline: str) -> Callable[[Columns], Any]:
    return lambda c: c.raw("pipeline").astype(str) == pipeline


# Quantities shared by several features.
_DERIVED: dict[str, Callable[[Columns], Any]] = {
    "is_3d": lambda c: (c["Di"] > 1) | (c["Z"] > 1) | (c["pad_d"] > 0),
    "Ho": _output("Hi", "Y", "h"),
    "Wo": _output("Wi", "X", "w"),
    "Do": lambda c: np.where(c["is_3d"], _output("Di", "Z", "d")(c), 1),
    "bytes_per_element": lambda c: c.codes("dtype", DTYPE_BYTES, _UNKNOWN_DTYPE_BYTES),
    "pipeline_code": lambda c: c.codes("pipeline", PIPELINE_CODES, _UNKNOWN_PIPELINE),
    "input_volume": _volume("Di", "Hi", "Wi"),
    "filter_volume": _volume("Z", "Y", "X"),
    "output_volume": _volume("Do", "Ho", "Wo"),
    "groups": lambda c: np.maximum(c["G"], 1),
    "c_per_group": lambda c: c["C"] / c["groups"],
    "k_per_group": lambda c: c["K"] / c["groups"],
    "flops": lambda c: c["N"] * c["K"] * c["output_volume"] * c["c_per_group"] * c["filter_volume"] * 2,
    "input_elements": lambda c: c["N"] * c["C"] * c["input_volume"],
    "filter_elements": lambda c: c["K"] * c["c_per_group"] * c["filter_volume"],
    "output_elements": lambda c: c["N"] * c["K"] * c["output_volume"],
    "bytes": lambda c: (c["input_elements"] + c["filter_elements"] + c["output_elements"]) * c["bytes_per_element"],
    "lds_usage": lambda c: (c["gemm_m_per_block"] + c["gemm_n_per_block"]) * c["block_size"] * c["bytes_per_element"],
    "lds_cap": lambda c: np.where(_one_hot("compv4")(c), _COMPV4_LDS_BYTES, np.maximum(c["hw_lds_capacity"], 1)),
    "gemm_m_output": lambda c: c["N"] * c["output_volume"],
    "gemm_n_output": raw("K"),
    "gemm_k_output": lambda c: np.floor(c["c_per_group"] * c["filter_volume"]),
    "num_tiles_m": pieces("gemm_m_output", "gemm_m_per_block"),
    "num_tiles_n": pieces("gemm_n_output", "gemm_n_per_block"),
    "num_tiles_k": pieces("gemm_k_output", "block_size"),
    "total_output_tiles": lambda c: c["num_tiles_m"] * c["num_tiles_n"],
    "tile_eff_m": _last_tile_fill("gemm_m_output", "gemm_m_per_block"),
    "tile_eff_n": _last_tile_fill("gemm_n_output", "gemm_n_per_block"),
    "tile_eff_k": _last_tile_fill("gemm_k_output", "block_size"),
    "hw_total_simds": lambda c: c["hw_num_cus"] * c["hw_simds_per_cu"],
}

_HARDWARE_ORDER = (*HARDWARE[:2], "total_simds", *HARDWARE[2:])
_HARDWARE_UNITS = {"max_clock_mhz": "MHz", "wavefront_size": "lanes", "lds_capacity": "bytes"}


def _is_cube(taps: int) -> Callable[[Columns], Any]:
    return lambda c: (c["Y"] == taps) & (c["X"] == taps) & (~c["is_3d"] | (c["Z"] == taps))


_PROBLEM_FEATURES = (
    *(Feature(name, "", raw(name)) for name in ("N", "C", "K", "G", "Hi", "Wi", "Y", "X")),
    *(Feature(name, "", raw(name)) for name in ("stride_h", "stride_w", "pad_h", "pad_w", "Ho", "Wo")),
    *(Feature(f"log2_{name}", "log2", log2_of(name)) for name in ("N", "C", "K", "G", "Hi", "Wi")),
    Feature("log2_spatial", "log2", log2_of("input_volume")),
    Feature("log2_filter", "log2", log2_of("filter_volume")),
    Feature("log2_output", "log2", log2_of("output_volume")),
    Feature("arithmetic_intensity", "flop/byte", ratio("flops", "bytes")),
    Feature("filter_area", "taps", raw("filter_volume")),
    Feature("is_1x1_conv", "", lambda c: (c["Y"] == 1) & (c["X"] == 1) & (c["Z"] == 1)),
    Feature("is_3x3_conv", "", _is_cube(3)),
    Feature("channels_per_group", "channels", raw("c_per_group")),
    Feature("aspect_ratio_hw", "", ratio("Hi", "Wi")),
    Feature("aspect_ratio_filter", "", ratio("Y", "X")),
    *(Feature(name, "", raw(name)) for name in ("is_3d", "Di", "Z", "Do", "stride_d", "pad_d")),
    *(Feature(name, "", raw(name)) for name in ("dilation_h", "dilation_w")),
    Feature("log2_channels_per_group", "log2", log2_of("c_per_group")),
    Feature("log2_output_channels_per_group", "log2", log2_of("k_per_group")),
    Feature("is_depthwise", "", lambda c: (c["G"] == c["C"]) & (c["G"] == c["K"])),
    Feature("group_density", "", ratio("G", "C")),
    Feature("is_small_group", "", lambda c: (c["c_per_group"] < _SMALL_GROUP) | (c["k_per_group"] < _SMALL_GROUP)),
    Feature("channels_product_per_group", "", lambda c: c["c_per_group"] * c["k_per_group"]),
    Feature("batch_group_product", "", lambda c: c["N"] * c["G"]),
    Feature("is_small_batch_grouped", "", lambda c: (c["N"] < _SMALL_BATCH) & (c["G"] > 1)),
)

_KERNEL_FEATURES = (
    *(Feature(name, "elements", raw(name)) for name in ("block_size", "gemm_m_per_block", "gemm_n_per_block")),
    Feature("pipeline", "category", raw("pipeline_code")),
    Feature("num_warps", "", lambda c: c["block_size"] / 4),
    Feature("tile_volume", "", lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"] * c["block_size"]),
    Feature("tile_mn", "", lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"]),
    Feature("lds_usage_estimate", "bytes", raw("lds_usage")),
    Feature("lds_usage_ratio", "", lambda c: c["lds_usage"] / c["lds_cap"]),
    Feature("block_tile_ratio_m", "", ratio("gemm_m_per_block", "block_size")),
    Feature("block_tile_ratio_n", "", ratio("gemm_n_per_block", "block_size")),
    Feature(
        "block_efficiency",
        "",
        lambda c: (
            np.minimum(c["gemm_m_per_block"], c["gemm_n_per_block"])
            / np.maximum(np.maximum(c["gemm_m_per_block"], c["gemm_n_per_block"]), 1)
        ),
    ),
    *(Feature(f"is_{name}", "", _one_hot(name)) for name in ("compv3", "compv4", "compv5")),
    Feature("is_intrawave", "", lambda c: c.raw("wave_mode").astype(str) == "intrawave"),
    Feature("has_dsb", "", _flag("has_dsb")),
    Feature("has_si", "", _flag("has_si")),
    Feature("is_basic", "", lambda c: np.char.startswith(c.raw("pipeline").astype(str), "basic_v")),
    *(Feature(f"is_{name}", "", _one_hot(name)) for name in ("compv6", "mem")),
)

_BOTH_FEATURES = (
    *(Feature(f"gemm_{side}_output", "", raw(f"gemm_{side}_output")) for side, _ in _SIDES),
    *(Feature(f"num_tiles_{side}", "tiles", raw(f"num_tiles_{side}")) for side, _ in _SIDES),
    Feature("total_output_tiles", "tiles", raw("total_output_tiles")),
    *(Feature(f"tile_eff_{side}", "", raw(f"tile_eff_{side}")) for side, _ in _SIDES),
    Feature("overall_tile_efficiency", "", lambda c: c["tile_eff_m"] * c["tile_eff_n"] * c["tile_eff_k"]),
    Feature("cu_utilization", "tiles/CU", ratio("total_output_tiles", "hw_num_cus")),
    *(Feature(f"ratio_gemm_{s}_to_tile_{s}", "", ratio(f"gemm_{s}_output", tile)) for s, tile in _SIDES),
    *(
        Feature(
            f"problem_smaller_than_tile_{s}",
            "",
            lambda c, size=f"gemm_{s}_output", tile=tile: c[size] < c[tile],  # type: ignore[misc]
        )
        for s, tile in _SIDES
    ),
)
_HARDWARE_FEATURES = tuple(
    Feature(f"hw_{name}", _HARDWARE_UNITS.get(name, "KB" if name.endswith("_kb") else ""), raw(f"hw_{name}"))
    for name in _HARDWARE_ORDER
)

_CORE = (*_PROBLEM_FEATURES, *_KERNEL_FEATURES, *_BOTH_FEATURES, *_HARDWARE_FEATURES)
CORE_NAMES: tuple[str, ...] = tuple(feature.name for feature in _CORE)

# Additions to AMD's schema: eight names for 3D, six for suffixes of kernel names.
_SINCE_91 = frozenset({"is_3d", "Di", "Z", "Do", "stride_d", "pad_d", "dilation_h", "dilation_w"})
_SINCE_97 = frozenset({"is_intrawave", "has_dsb", "has_si", "is_basic", "is_compv6", "is_mem"})
NAMES_91: tuple[str, ...] = tuple(name for name in CORE_NAMES if name not in _SINCE_97)
NAMES_83: tuple[str, ...] = tuple(name for name in NAMES_91 if name not in _SINCE_91)

_KERNEL_COLUMNS = (
    *("block_size", "gemm_m_per_block", "gemm_n_per_block", "pipeline", "wave_mode", "has_dsb", "has_si"),
)
GROUPED_CONV = FeatureEngine(
    op_type="grouped_conv",
    features=(*_CORE, *EXTRA_FEATURES),
    categorical=("pipeline", "kernel_variant", "tile_shape"),
    derived=_DERIVED | EXTRA_DERIVED,
    defaults=_BASE_DEFAULTS,
    kernel_columns=frozenset(_KERNEL_COLUMNS),
)

# Raw columns that the features read, besides the hardware profile.
INPUT_COLUMNS: tuple[str, ...] = (
    *CONV_COLUMNS,
    "variant",
    "dtype",
    *_KERNEL_COLUMNS,
)
