"""Analytic model of a convolution kernel's time: iterations over K, waves of workgroups, and bytes.

A block executes one loop iteration per tile of K. Blocks run in waves of as many as there are compute units, or
continuously where several share a unit; fewer blocks than units do not finish sooner. A loop of a single iteration
cannot overlap its loads, which costs some pipelines more than others. Channels that are not a multiple of eight are
loaded in parts. The time of an iteration grows with the tile: loads, multiplications and stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import TimeLaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ckh.features.engine import Columns

_VECTOR = 8  # channels per load
_ALIGNMENTS = (1, 2, 8, 32, 64)
_MOST_IMAGES = 64
_AXES = (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w"))


def _blocks(c: Columns) -> Any:
    """Blocks per compute unit."""
    return c["all_tiles"] / np.maximum(c["hw_num_cus"], 1)


def _rounds(c: Columns) -> Any:
    return np.ceil(_blocks(c))


def _busy(c: Columns) -> Any:
    """Blocks per compute unit that has at least one."""
    return np.maximum(_blocks(c), 1)


def _is_single(c: Columns) -> Any:
    return c["group_tiles_k"] == 1


LAW_TERMS: dict[str, Callable[[Columns], Any]] = {
    "law_trips": lambda c: c["group_tiles_k"],
    "law_rounds": _rounds,
    "law_trips_of_rounds": lambda c: _rounds(c) * c["group_tiles_k"],
    "law_blocks": _blocks,
    "law_trips_of_blocks": lambda c: _blocks(c) * c["group_tiles_k"],
    "law_busy": _busy,
    "law_trips_of_busy": lambda c: _busy(c) * c["group_tiles_k"],
    "law_single_trip": _is_single,
    "law_single_trip_of_busy": lambda c: _is_single(c) * _busy(c),
    "law_input_bytes": lambda c: c["input_elements"] * c["bytes_per_element"],
    "law_output_bytes": lambda c: c["output_elements"] * c["bytes_per_element"],
    "law_filter_bytes": lambda c: c["filter_elements"] * c["bytes_per_element"],
    "law_unaligned_trips": lambda c: _is_unaligned(c) * c["group_tiles_k"],
    "law_unaligned_trips_of_rounds": lambda c: _is_unaligned(c) * _rounds(c) * c["group_tiles_k"],
}

LAW_TILES: dict[str, Callable[[Columns], Any]] = {
    "law_tile_k": lambda c: c["block_size"],
    "law_tile_sides": lambda c: c["gemm_m_per_block"] + c["gemm_n_per_block"],
    "law_tile_area": lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"],
    "law_tile_loads": lambda c: (c["gemm_m_per_block"] + c["gemm_n_per_block"]) * c["block_size"],
    "law_tile_work": lambda c: c["gemm_m_per_block"] * c["gemm_n_per_block"] * c["block_size"],
}


def _is_unaligned(c: Columns) -> Any:
    return np.mod(c["c_per_group"], _VECTOR) != 0


def _varied(
    columns: Mapping[str, NDArray[Any]], octaves: float, random: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Scale images, channels and pixels by up to `octaves`; channels remain multiples of the groups, filters valid."""
    made = dict(columns)
    groups = np.asarray(made["G"], dtype=np.int64)

    def scaled(name: str) -> NDArray[np.float64]:
        factor = 2.0 ** random.uniform(-octaves, octaves, len(groups))
        return np.maximum(np.rint(made[name] * factor), 1)

    made["N"] = np.minimum(scaled("N"), _MOST_IMAGES).astype(np.int64)
    for name in ("C", "K"):
        alignment = random.choice(_ALIGNMENTS, len(groups))
        per_group = np.maximum(np.rint(scaled(name) / groups / alignment), 1) * alignment
        is_depthwise = made[name] == groups
        made[name] = np.where(is_depthwise, groups, per_group * groups).astype(np.int64)
    for size, taps, axis in _AXES:
        if (made[size] == 1).all():
            continue
        reach = (made[taps] - 1) * made[f"dilation_{axis}"] + 1 - 2 * made[f"pad_{axis}"]
        made[size] = np.where(made[size] == 1, 1, np.maximum(scaled(size), reach)).astype(np.int64)
    return made


_SIZES = ("group_gemm_m", "group_gemm_n", "group_gemm_k", "groups", "bytes")
CONV_LAW = TimeLaw(tuple(LAW_TERMS), tuple(LAW_TILES), _varied, _SIZES)
