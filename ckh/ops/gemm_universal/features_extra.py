"""Features of GEMMs beyond AMD's 72.

They say what the 72 leave out: how full tiles and the blocks of one instruction row (waves x warp tile) are on average,
how much of a tile the problem uses, what a tile and its panels take of the caches, how far sizes are powers of two
(rows at such distances share cache sets), how tiles fill the compute units, and the kernel's code path and padding as
one category each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature

if TYPE_CHECKING:
    from collections.abc import Callable

    Formula = Callable[[Columns], Any]

_AXES = "mnk"
_BLOCK_AXES = "mn"  # along which waves lie
_OPERANDS = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}
_KIB = 1024
_SMALL = 16
_POWERS = 12


def _raw(name: str) -> Formula:
    return lambda c: c[name]


def _product(first: str, second: str) -> Formula:
    return lambda c: c[first] * c[second]


def _log2(value: Any) -> Any:
    return np.log2(np.maximum(value, 1))


def _pieces(size: str, piece: str) -> Formula:
    return lambda c: np.ceil(c[size] / np.maximum(c[piece], 1))


def _average_fill(size: str, piece: str) -> Formula:
    return lambda c: c[size] / (np.ceil(c[size] / np.maximum(c[piece], 1)) * np.maximum(c[piece], 1))


def _used(axis: str) -> Formula:
    return lambda c: np.minimum(c[axis], c[f"tile_{axis}"])


def _rest(size: str, piece: str) -> Formula:
    return lambda c: np.mod(c[size], np.maximum(c[piece], 1))


def _powers_of_two(size: str) -> Formula:
    """How often two divides a size, up to 12 times."""
    return lambda c: sum((np.mod(c[size], 2.0**power) == 0).astype(float) for power in range(1, _POWERS + 1))


def _over_cache(bytes_of: Formula, cache: str) -> Formula:
    return lambda c: np.log2(np.maximum(bytes_of(c), 1) / np.maximum(c[cache] * _KIB, 1))


def _operand_bytes(operand: str) -> Formula:
    first, second = _OPERANDS[operand]
    return lambda c: c[first] * c[second] * c["bytes_per_element"]


def _tile_bytes(operand: str) -> Formula:
    """Bytes of an operand's tile that the problem uses."""
    first, second = _OPERANDS[operand]
    return lambda c: c[f"used_{first}"] * c[f"used_{second}"] * c["bytes_per_element"]


def _panel_bytes(axis: str) -> Formula:
    """All of K for one tile along M or N."""
    return lambda c: c[f"used_{axis}"] * c["k"] * c["bytes_per_element"]


def _log2_read(operand: str) -> Formula:
    """Bytes read of an operand when every tile reads its own."""
    times, size = "num_tiles_n" if operand == "a" else "num_tiles_m", _operand_bytes(operand)
    return lambda c: _log2(c[times] * size(c))


EXTRA_DERIVED: dict[str, Formula] = {
    **{f"block_{axis}": _product(f"wave_{axis}", f"warp_tile_{axis}") for axis in _BLOCK_AXES},
    **{f"used_{axis}": _used(axis) for axis in _AXES},
}

EXTRA_FEATURES: tuple[Feature, ...] = (
    *(
        Feature(f"log2_{operand.upper()}_over_{level}", "log2", _over_cache(_operand_bytes(operand), cache))
        for operand in _OPERANDS
        for level, cache in (("l2", "hw_l2_cache_kb"), ("l3", "hw_l3_cache_kb"))
    ),
    *(Feature(f"powers_of_two_{axis.upper()}", "", _powers_of_two(axis)) for axis in _AXES),
    *(
        Feature(f"rest_16_{axis.upper()}", "elements", lambda c, axis=axis: np.mod(c[axis], _SMALL))  # type: ignore[misc]
        for axis in _AXES
    ),
    *(Feature(f"block_{axis}", "elements", _raw(f"block_{axis}")) for axis in _BLOCK_AXES),
    Feature("block_aspect", "", lambda c: c["block_m"] / np.maximum(c["block_n"], 1)),
    *(Feature(f"blocks_{axis}", "", _pieces(f"tile_{axis}", f"block_{axis}")) for axis in _BLOCK_AXES),
    Feature(
        "code_path",
        "category",
        lambda c: c["pipeline_code"] * 8 + c["scheduler_code"] * 4 + c["epilogue_code"] * 2 + c["persistent"],
    ),
    Feature("padding", "category", lambda c: c["pad_m"] * 4 + c["pad_n"] * 2 + c["pad_k"]),
    *(Feature(f"average_fill_{axis}", "", _average_fill(axis, f"tile_{axis}")) for axis in _AXES),
    *(Feature(f"block_fill_{axis}", "", _average_fill(axis, f"block_{axis}")) for axis in _BLOCK_AXES),
    *(Feature(f"block_rest_{axis}", "elements", _rest(axis, f"block_{axis}")) for axis in _BLOCK_AXES),
    *(Feature(f"used_{axis}", "elements", _raw(f"used_{axis}")) for axis in _AXES),
    *(
        Feature(f"log2_tile_{operand}_over_{level}", "log2", _over_cache(_tile_bytes(operand), cache))
        for operand in _OPERANDS
        for level, cache in (("l1", "hw_l1_cache_kb"), ("l2", "hw_l2_cache_kb"))
    ),
    *(
        Feature(f"log2_panel_{axis}_over_l2", "log2", _over_cache(_panel_bytes(axis), "hw_l2_cache_kb"))
        for axis in _BLOCK_AXES
    ),
    *(Feature(f"log2_read_{operand}", "log2", _log2_read(operand)) for operand in "ab"),
    Feature(
        "last_wave_fill",
        "",
        lambda c: (
            c["total_output_tiles"]
            / (np.ceil(c["total_output_tiles"] / np.maximum(c["hw_num_cus"], 1)) * np.maximum(c["hw_num_cus"], 1))
        ),
    ),
)
EXTRA_CATEGORIES = ("code_path", "padding")
