"""Raw columns of GEMM problems and kernels, and their features: AMD's 72 (78 in encoding version 1), and ckh's own.

AMD's data call waves per block `warp_m`, `warp_n`, `warp_k`; ckh calls them `wave_*`, since elsewhere AMD uses `warp_*`
for the warp tile. `from_amd` renames AMD's columns.

The 72 equal AMD's `GemmUniversalFeatureEngine` value by value, including its quirks: an unknown pipeline is encoded as
compv3 and an unknown epilogue as default, `tile_eff_*` is the utilization of the last tile, compv4 has 32 KB of LDS on
every architecture, `cu_utilization` has no upper limit, and `warp_*` is waves per block.

The additional features describe what the 72 omit: average utilization of tiles and of the blocks of one instruction row
(waves x warp tile), the part of a tile that the problem uses, cache footprint of a tile and of its panels, the powers
of two that divide sizes (rows at such distances share cache sets), distribution of tiles over compute units, and code
path and padding of the kernel as one category each.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine, fill, log2_of, pieces, product, ratio, raw, remainder
from ckh.kernels.declaration import column_tokens
from ckh.kernels.pipelines import MARKED_PADDED_PIPELINES, PIPELINE_CODES
from ckh.kernels.table import TRIPLES, column_of
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.problem_rules import LOAD_BYTES, MAX_VECTOR_BYTES, NARROW
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, OP_TYPE, GemmProblem
from ckh.problems import DTYPE_BYTES
from ckh.schema import HARDWARE

if TYPE_CHECKING:
    from collections.abc import Callable

    Formula = Callable[[Columns], Any]
    from collections.abc import Mapping, Sequence


PROBLEM_COLUMNS: tuple[str, ...] = ("m", "n", "k", "split_k", "dtype", "layout")
_TYPES = {name: token.type for name, token in column_tokens(GemmKernel).items()}
# Numbers, then texts, then flags.
KERNEL_COLUMNS: tuple[str, ...] = tuple(sorted(_TYPES, key=lambda name: (int, str, bool).index(_TYPES[name])))

# Raw columns that the features read, besides the hardware profile.
INPUT_COLUMNS: tuple[str, ...] = (*PROBLEM_COLUMNS, *KERNEL_COLUMNS)

AMD_WAVES: dict[str, str] = {"warp_m": "wave_m", "warp_n": "wave_n", "warp_k": "wave_k"}


def problem_columns(problems: Sequence[GemmProblem], kind: type[GemmProblem] = GemmProblem) -> dict[str, Any]:
    """One row per problem of a class: sizes and texts. Kernels have no dtype and layout: the problem's apply."""
    sizes_of = attrgetter(*kind.size_columns.values())
    rows = np.array([sizes_of(problem) for problem in problems], np.float64)
    sizes = dict(zip(kind.size_columns, np.ascontiguousarray(rows.T), strict=True))
    return sizes | {name: np.array([getattr(problem, name) for problem in problems]) for name in kind.text_columns}


def kernel_columns(kernels: Sequence[GemmKernel], *, mem_is_padded: bool = False) -> dict[str, Any]:
    """One row per kernel; `mem_is_padded`: those of `mem` are, whatever their names, as AMD's converter has it."""
    columns = {
        name: column_of(kernels, name).astype(np.str_ if _TYPES[name] is str else np.float64) for name in KERNEL_COLUMNS
    }
    as_padded = np.isin(columns["pipeline"], list(MARKED_PADDED_PIPELINES)) & mem_is_padded
    columns |= {name: (columns[name].astype(np.bool_) | as_padded).astype(np.float64) for name in TRIPLES["pads"]}
    return columns | {name: column_of(kernels, name).astype(np.float64) for name in TRIPLES["vectors"]}


def from_amd(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the columns of AMD's GEMM data to ckh's."""
    return {AMD_WAVES.get(name, name): values for name, values in columns.items()}


_AXES = "mnk"
_BLOCK_AXES = "mn"  # axes along which waves are arranged
_OPERANDS = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}
_KIB = 1024
_SMALL = 16
_POWERS = 12


def _log2(value: Any) -> Any:
    return np.log2(np.maximum(value, 1))


def _used(axis: str) -> Formula:
    return lambda c: np.minimum(c[axis], c[f"tile_{axis}"])


def _powers_of_two(size: str) -> Formula:
    """Exponent of the largest power of two that divides a size, at most 12."""
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
    """Bytes of a panel: all of K for one tile along M or N."""
    return lambda c: c[f"used_{axis}"] * c["k"] * c["bytes_per_element"]


def _log2_read(operand: str) -> Formula:
    """Bytes of an operand that are read if every tile reads its own data, as a logarithm."""
    times, size = "num_tiles_n" if operand == "a" else "num_tiles_m", _operand_bytes(operand)
    return lambda c: _log2(c[times] * size(c))


EXTRA_DERIVED: dict[str, Formula] = {
    **{f"block_{axis}": product(f"wave_{axis}", f"warp_tile_{axis}") for axis in _BLOCK_AXES},
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
    *(Feature(f"block_{axis}", "elements", raw(f"block_{axis}")) for axis in _BLOCK_AXES),
    Feature("block_aspect", "", lambda c: c["block_m"] / np.maximum(c["block_n"], 1)),
    *(Feature(f"blocks_{axis}", "", pieces(f"tile_{axis}", f"block_{axis}")) for axis in _BLOCK_AXES),
    Feature(
        "code_path",
        "category",
        lambda c: c["pipeline_code"] * 8 + c["scheduler_code"] * 4 + c["epilogue_code"] * 2 + c["persistent"],
    ),
    Feature("padding", "category", lambda c: c["pad_m"] * 4 + c["pad_n"] * 2 + c["pad_k"]),
    *(Feature(f"average_fill_{axis}", "", fill(axis, f"tile_{axis}")) for axis in _AXES),
    *(Feature(f"block_fill_{axis}", "", fill(axis, f"block_{axis}")) for axis in _BLOCK_AXES),
    *(Feature(f"block_rest_{axis}", "elements", remainder(axis, f"block_{axis}")) for axis in _BLOCK_AXES),
    *(Feature(f"used_{axis}", "elements", raw(f"used_{axis}")) for axis in _AXES),
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
    Feature("last_wave_fill", "", fill("total_output_tiles", "hw_num_cus")),
)
EXTRA_CATEGORIES = ("code_path", "padding")


_COMPV4_LDS_BYTES = 32768.0
_UNKNOWN_DTYPE_BYTES = 1.0
_UNKNOWN = 0.0
CODES: dict[str, dict[str, float]] = {
    "layout": {name: float(code) for code, name in enumerate(GEMM_LAYOUTS)},
    "pipeline": {name: float(code) for name, code in PIPELINE_CODES.items()},
    "scheduler": {"intrawave": 0, "interwave": 1},
    "epilogue": {"default": 0, "cshuffle": 1},
}


def _any(*names: str) -> Formula:
    return lambda c: (c[names[0]] > 0) | (c[names[1]] > 0) | (c[names[2]] > 0)


def _code(name: str) -> Formula:
    return lambda c: c.codes(name, CODES[name], _UNKNOWN)


def _last_tile_fill(axis: str) -> Formula:
    def formula(c: Columns) -> Any:
        rest = c[f"rest_{axis}"]
        return np.where(rest > 0, rest / np.maximum(c[f"tile_{axis}"], 1), 1.0)

    return formula


def _lds_cap(c: Columns) -> Any:
    is_compv4 = np.char.startswith(c.raw("pipeline").astype(str), "compv4")
    return np.where(is_compv4, _COMPV4_LDS_BYTES, np.maximum(c["hw_lds_capacity"], 1))


def _per_axis(name: str, formula: Callable[[str], Formula]) -> dict[str, Formula]:
    return {f"{name}_{axis}": formula(axis) for axis in _AXES}


# Quantities shared by several features.
_DERIVED: dict[str, Formula] = {
    "bytes_per_element": lambda c: c.codes("dtype", DTYPE_BYTES, _UNKNOWN_DTYPE_BYTES),
    "mnk": product("m", "n", "k"),
    "flops": lambda c: 2 * c["m"] * c["n"] * c["k"],
    "bytes": lambda c: (c["m"] * c["k"] + c["k"] * c["n"] + c["m"] * c["n"]) * c["bytes_per_element"],
    "lds_usage": lambda c: (c["tile_m"] * c["tile_k"] + c["tile_n"] * c["tile_k"]) * c["bytes_per_element"],
    "lds_cap": _lds_cap,
    **{f"{name}_code": _code(name) for name in ("pipeline", "scheduler", "epilogue")},
    "hw_total_simds": product("hw_num_cus", "hw_simds_per_cu"),
    **_per_axis("rest", lambda axis: remainder(axis, f"tile_{axis}")),
    **_per_axis("num_tiles", lambda axis: pieces(axis, f"tile_{axis}")),
    **_per_axis("tile_eff", _last_tile_fill),
    **_per_axis("smaller", lambda axis: lambda c: (c[axis] < c[f"tile_{axis}"]).astype(float)),
    **_per_axis("padded", lambda axis: lambda c: (c[f"rest_{axis}"] > 0) & (c[f"pad_{axis}"] > 0)),
    **_per_axis("unpadded", lambda axis: lambda c: (c[f"rest_{axis}"] > 0) & ~(c[f"pad_{axis}"] > 0)),
    "total_output_tiles": product("num_tiles_m", "num_tiles_n"),
}

_PROBLEM_FEATURES = (
    *(Feature(axis.upper(), "elements", raw(axis)) for axis in _AXES),
    Feature("split_k", "parts", raw("split_k")),
    *(Feature(f"log2_{axis.upper()}", "log2", log2_of(axis)) for axis in _AXES),
    Feature("log2_MNK", "log2", log2_of("mnk")),
    Feature("arithmetic_intensity", "flop/byte", ratio("flops", "bytes")),
    *(Feature(f"aspect_ratio_{a}{b}", "", ratio(a, b)) for a, b in ("mn", "mk", "nk")),
    Feature("layout", "category", _code("layout")),
)
_KERNEL_FEATURES = (
    *(Feature(f"tile_{axis}", "elements", raw(f"tile_{axis}")) for axis in _AXES),
    *(Feature(f"warp_{axis}", "waves", raw(f"wave_{axis}")) for axis in _AXES),
    *(Feature(f"warp_tile_{axis}", "elements", raw(f"warp_tile_{axis}")) for axis in _AXES),
    *(Feature(name, "category", raw(f"{name}_code")) for name in ("pipeline", "scheduler", "epilogue")),
    *(Feature(f"pad_{axis}", "", raw(f"pad_{axis}")) for axis in _AXES),
    Feature("persistent", "", raw("persistent")),
    Feature("num_warps", "waves", product("wave_m", "wave_n", "wave_k")),
    Feature("tile_volume", "", product("tile_m", "tile_n", "tile_k")),
    Feature("tile_mn", "", product("tile_m", "tile_n")),
)
_BOTH_FEATURES = (
    Feature("lds_usage_estimate", "bytes", raw("lds_usage")),
    Feature("lds_usage_ratio", "", lambda c: c["lds_usage"] / c["lds_cap"]),
    *(Feature(f"num_tiles_{axis}", "tiles", raw(f"num_tiles_{axis}")) for axis in _AXES),
    Feature("total_output_tiles", "tiles", raw("total_output_tiles")),
    *(Feature(f"tile_eff_{axis}", "", raw(f"tile_eff_{axis}")) for axis in _AXES),
    Feature("overall_tile_efficiency", "", product("tile_eff_m", "tile_eff_n", "tile_eff_k")),
    Feature("cu_utilization", "tiles/CU", ratio("total_output_tiles", "hw_num_cus")),
)
# Features that AMD's schema gained after its first 55: problem size relative to the tile, and required padding.
_FIT_FEATURES = (
    *(Feature(f"ratio_{axis.upper()}_to_tile_{axis}", "", ratio(axis, f"tile_{axis}")) for axis in _AXES),
    *(Feature(f"problem_smaller_than_tile_{axis}", "", raw(f"smaller_{axis}")) for axis in _AXES),
    Feature("any_dim_too_small", "", _any("smaller_m", "smaller_n", "smaller_k")),
    *(Feature(f"needs_padding_{axis}", "", lambda c, a=axis: c[f"rest_{a}"] > 0) for axis in _AXES),  # type: ignore[misc]
    *(Feature(f"has_padding_when_needed_{axis}", "", raw(f"padded_{axis}")) for axis in _AXES),
    *(Feature(f"missing_required_padding_{axis}", "", raw(f"unpadded_{axis}")) for axis in _AXES),
    Feature("missing_any_required_padding", "", _any("unpadded_m", "unpadded_n", "unpadded_k")),
)
_UNITS = {"max_clock_mhz": "MHz", "max_waves_per_cu": "waves", "wavefront_size": "lanes", "lds_capacity": "bytes"}
_HARDWARE_FEATURES = tuple(
    Feature(f"hw_{name}", _UNITS.get(name, "KB" if name.endswith("_kb") else ""), raw(f"hw_{name}"))
    for name in (*HARDWARE[:2], "total_simds", *HARDWARE[2:])
)

_CORE = (*_PROBLEM_FEATURES, *_KERNEL_FEATURES, *_BOTH_FEATURES, *_FIT_FEATURES, *_HARDWARE_FEATURES)

# AMD's engine with vector widths, of encoding version 1: global loads of A and B and stores of C, in elements.
_RESULT_BYTES = {name: {"fp8": 2.0, "bf8": 2.0, "int8": 4.0}.get(name, size) for name, size in DTYPE_BYTES.items()}


def _is_row(place: int) -> Formula:
    """True for layouts whose operand of this place is row-major."""
    return lambda c: c.codes("layout", {name: float(name[place] == "r") for name in GEMM_LAYOUTS}, 1.0) > 0


def _load_width(operand: str) -> Formula:
    """Native width: the widest load that divides the tile's contiguous extent and the elements of a thread."""
    axis, rows, columns = ("m", "tile_m", "tile_k") if operand == "a" else ("n", "tile_k", "tile_n")

    def formula(c: Columns) -> Any:
        extent = np.where(_is_row("ab".index(operand))(c), c[columns], c[rows])
        threads = np.maximum(c["wave_m"] * c["wave_n"] * c["wave_k"] * c["hw_wavefront_size"], 1)
        per_thread, element = np.floor(c[f"tile_{axis}"] * c["tile_k"] / threads), c["bytes_per_element"]
        native = np.ones_like(extent + element)
        for size in reversed(LOAD_BYTES):
            width = np.maximum(np.floor(size / element), 1)
            divides = (np.mod(extent, width) == 0) & (np.mod(per_thread, width) == 0)
            is_tried = (element <= size) & ((size >= NARROW) | (element >= size))
            native = np.where(is_tried & divides, width, native)
        return native

    return formula


def _store_width(c: Columns) -> Any:
    shuffled = np.minimum(c["warp_tile_n"] * c["wave_n"], MAX_VECTOR_BYTES // c["result_bytes"])
    return np.where(c["epilogue_code"] > 0, shuffled, 1.0)


def _legal_width(operand: str) -> Formula:
    """Widest vector of 16 bytes whose elements divide the contiguous extent of an operand."""
    place, (rows, columns) = "abc".index(operand), _OPERANDS[operand]

    def formula(c: Columns) -> Any:
        extent = np.where(_is_row(place)(c), c[columns], c[rows])
        most = MAX_VECTOR_BYTES // c["result_bytes" if operand == "c" else "bytes_per_element"]
        return 1 + sum(
            (np.mod(extent, 2.0**power) == 0) * (most >= 2.0**power) * 2.0 ** (power - 1) for power in range(1, 5)
        )

    return formula


def _fraction(operand: str) -> Formula:
    vector = f"vector_{operand}"
    return lambda c: np.where(c[vector] > 0, c[vector], c[f"native_{operand}"]) / c[f"legal_{operand}"]


_OF_WIDTHS: dict[str, Formula] = {
    "result_bytes": lambda c: c.codes("dtype", _RESULT_BYTES, _UNKNOWN_DTYPE_BYTES),
    **{f"native_{operand}": _load_width(operand) for operand in "ab"},
    "native_c": _store_width,
    **{f"legal_{operand}": _legal_width(operand) for operand in _OPERANDS},
}
_WIDTH_FEATURES = (
    *(Feature(f"vec_{operand}", "elements", raw(f"vector_{operand}")) for operand in _OPERANDS),
    *(Feature(f"vec_frac_{operand}", "", _fraction(operand)) for operand in _OPERANDS),
)

GEMM_UNIVERSAL = FeatureEngine(
    op_type=OP_TYPE,
    features=(*_CORE, *EXTRA_FEATURES),
    categorical=("layout", "pipeline", "scheduler", "epilogue", *EXTRA_CATEGORIES),
    derived=_DERIVED | EXTRA_DERIVED | _OF_WIDTHS,
    defaults={},
    kernel_columns=frozenset((*KERNEL_COLUMNS, *TRIPLES["vectors"])),
    encodings=(0, 1),
    further=_WIDTH_FEATURES,
)
NAMES_72: tuple[str, ...] = tuple(feature.name for feature in _CORE)
NAMES_78: tuple[str, ...] = (*NAMES_72, *(feature.name for feature in _WIDTH_FEATURES))
_SINCE_55 = frozenset(feature.name for feature in _FIT_FEATURES)
NAMES_55: tuple[str, ...] = tuple(name for name in NAMES_72 if name not in _SINCE_55)
