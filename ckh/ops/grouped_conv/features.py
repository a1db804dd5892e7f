"""Features of grouped convolutions: AMD's 97 (encoding version 0), and ours beside them.

The 97 equal AMD's `GroupedConvFeatureEngine` value by value, its quirks included: an unknown pipeline counts as
compv3, `tile_eff_*` is how full the last tile is, `gemm_n_output` is all of K whatever the groups, and the GEMM sizes
are those of the forward pass in every direction. Ours say what those leave out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine
from ckh.kernels.pipelines import PIPELINE_CODES
from ckh.ops.grouped_conv.features_extra import EXTRA_DERIVED, EXTRA_FEATURES
from ckh.ops.grouped_conv.law import LAW_TERMS, LAW_TILES
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.problems import DTYPE_BYTES
from ckh.schema import HARDWARE

if TYPE_CHECKING:
    from collections.abc import Callable

_UNKNOWN_PIPELINE = 0.0
_UNKNOWN_DTYPE_BYTES = 2.0
_COMPV4_LDS_BYTES = 32768.0
_SMALL_GROUP = 16
_SMALL_BATCH = 8
_BASE_DEFAULTS: dict[str, float | str] = {
    "Di": 1,
    "Z": 1,
    "stride_d": 1,
    "pad_d": 0,
    "dilation_d": 1,
    "dilation_h": 1,
    "dilation_w": 1,
    "dtype": "bf16",
    "wave_mode": "intrawave",
    "has_dsb": 0,
    "has_si": 0,
}


def _log2(value: Any) -> Any:
    return np.log2(np.maximum(value, 1))


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


def _ratio(above: str, below: str) -> Callable[[Columns], Any]:
    return lambda c: c[above] / np.maximum(c[below], 1)


def _tiles(size: str, tile: str) -> Callable[[Columns], Any]:
    return lambda c: np.ceil(c[size] / np.maximum(c[tile], 1))


def _raw(name: str) -> Callable[[Columns], Any]:
    return lambda c: c[name]


def _log2_of(name: str) -> Callable[[Columns], Any]:
    return lambda c: _log2(c[name])


def _one_hot(pipeline: str) -> Callable[[Columns], Any]:
    return lambda c: c.raw("pipeline").astype(str) == pipeline


# Quantities that several features share.
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
    "gemm_n_output": _raw("K"),
    "gemm_k_output": lambda c: np.floor(c["c_per_group"] * c["filter_volume"]),
    "num_tiles_m": _tiles("gemm_m_output", "gemm_m_per_block"),
    "num_tiles_n": _tiles("gemm_n_output", "gemm_n_per_block"),
    "num_tiles_k": _tiles("gemm_k_output", "block_size"),
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
    *(Feature(name, "", _raw(name)) for name in ("N", "C", "K", "G", "Hi", "Wi", "Y", "X")),
    *(Feature(name, "", _raw(name)) for name in ("stride_h", "stride_w", "pad_h", "pad_w", "Ho", "Wo")),
    *(Feature(f"log2_{name}", "log2", _log2_of(name)) for name in ("N", "C", "K", "G", "Hi", "Wi")),
    Feature("log2_spatial", "log2", _log2_of("input_volume")),
    Feature("log2_filter", "log2", _log2_of("filter_volume")),
    Feature("log2_output", "log2", _log2_of("output_volume")),
    Feature("arithmetic_intensity", "flop/byte", _ratio("flops", "bytes")),
    Feature("filter_area", "taps", _raw("filter_volume")),
    Feature("is_1x1_conv", "", lambda c: (c["Y"] == 1) & (c["X"] == 1) & (c["Z"] == 1)),
    Feature("is_3x3_conv", "", _is_cube(3)),
    Feature("channels_per_group", "channels", _raw("c_per_group")),
    Feature("aspect_ratio_hw", "", _ratio("Hi", "Wi")),
    Feature("aspect_ratio_filter", "", _ratio("Y", "X")),
    *(Feature(name, "", _raw(name)) for name in ("is_3d", "Di", "Z", "Do", "stride_d", "pad_d")),
    *(Feature(name, "", _raw(name)) for name in ("dilation_h", "dilation_w")),
    Feature("log2_channels_per_group", "log2", _log2_of("c_per_group")),
    Feature("log2_output_channels_per_group", "log2", _log2_of("k_per_group")),
    Feature("is_depthwise", "", lambda c: (c["G"] == c["C"]) & (c["G"] == c["K"])),
    Feature("group_density", "", _ratio("G", "C")),
    Feature("is_small_group", "", lambda c: (c["c_per_group"] < _SMALL_GROUP) | (c["k_per_group"] < _SMALL_GROUP)),
    Feature("channels_product_per_group", "", lambda c: c["c_per_group"] * c["k_per_group"]),
    Feature("batch_group_product", "", lambda c: c["N"] * c["G"]),
    Feature("is_small_batch_grouped", "", lambda c: (c["N"] < _SMALL_BATCH) & (c["G"] > 1)),
)

_KERNEL_FEATURES = (
    *(Feature(name, "elements", _raw(name)) for name in ("block_size", "gemm_m_per_block", "gemm_n_per_block")),
    Feature("pipeline", "category", _raw("pipeline_code")),
    Feature("num_warps", "", lambda c: c["block_size"] / 4),
    Feature("tile_volume", "", lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"] * c["block_size"]),
    Feature("tile_mn", "", lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"]),
    Feature("lds_usage_estimate", "bytes", _raw("lds_usage")),
    Feature("lds_usage_ratio", "", lambda c: c["lds_usage"] / c["lds_cap"]),
    Feature("block_tile_ratio_m", "", _ratio("gemm_m_per_block", "block_size")),
    Feature("block_tile_ratio_n", "", _ratio("gemm_n_per_block", "block_size")),
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

_SIDES = (("m", "gemm_m_per_block"), ("n", "gemm_n_per_block"), ("k", "block_size"))
_BOTH_FEATURES = (
    *(Feature(f"gemm_{side}_output", "", _raw(f"gemm_{side}_output")) for side, _ in _SIDES),
    *(Feature(f"num_tiles_{side}", "tiles", _raw(f"num_tiles_{side}")) for side, _ in _SIDES),
    Feature("total_output_tiles", "tiles", _raw("total_output_tiles")),
    *(Feature(f"tile_eff_{side}", "", _raw(f"tile_eff_{side}")) for side, _ in _SIDES),
    Feature("overall_tile_efficiency", "", lambda c: c["tile_eff_m"] * c["tile_eff_n"] * c["tile_eff_k"]),
    Feature("cu_utilization", "tiles/CU", _ratio("total_output_tiles", "hw_num_cus")),
    *(Feature(f"ratio_gemm_{s}_to_tile_{s}", "", _ratio(f"gemm_{s}_output", tile)) for s, tile in _SIDES),
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
    Feature(f"hw_{name}", _HARDWARE_UNITS.get(name, "KB" if name.endswith("_kb") else ""), _raw(f"hw_{name}"))
    for name in _HARDWARE_ORDER
)

_CORE = (*_PROBLEM_FEATURES, *_KERNEL_FEATURES, *_BOTH_FEATURES, *_HARDWARE_FEATURES)
CORE_NAMES: tuple[str, ...] = tuple(feature.name for feature in _CORE)

# What AMD's schema gained: eight names with 3D, six with the suffixes of kernel names.
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
    derived=_DERIVED | EXTRA_DERIVED | LAW_TERMS | LAW_TILES,
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
