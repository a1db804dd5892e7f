"""Features of MIOpen's convolution problems and solvers, each declared once for the feature engine.

No feature depends on which other solvers a problem has: the databases list the four fastest, unknown at prediction.
Quantities shared by several features are formulas over columns.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine
from ckh.features.formulas import log2_of, product, ratio, raw
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.ops.miopen_conv.kernels.solvers import Algorithm, MathUnit, Serves, Solver, SolverOrigin, parse_solver
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.strenum import StrEnum

DIRECTIONS = {str(direction): float(code) for code, direction in enumerate(Direction)}
DTYPES = {name: float(code) for code, name in enumerate(("fp32", "fp16", "bf16", "int8"))}
UNKNOWN = -1.0


def power_of_two_in(values: Any, most: float) -> Any:
    """Largest power of two up to `most` that divides each value, which is raised to at least 1."""
    whole = np.maximum(values, 1).astype(np.int64)
    return np.minimum(whole & -whole, most)


def alignment_of(name: str, most: float = 64.0) -> Callable[[Columns], Any]:
    """Base-2 logarithm of `power_of_two_in`: n or more means divisible by 2^n."""
    return lambda c: np.log2(power_of_two_in(c[name], most))


def fill_of(name: str, tile: int) -> Callable[[Columns], Any]:
    """Utilization of whole tiles by a quantity."""
    return lambda c: c[name] / (np.ceil(c[name] / tile) * tile)


def by_direction(forward: str, bwd_data: str, bwd_weight: str) -> Callable[[Columns], Any]:
    """One of three quantities, selected by the problem's direction."""

    def formula(c: Columns) -> Any:
        code = c["direction"]
        return np.where(code == 0, c[forward], np.where(code == 1, c[bwd_data], c[bwd_weight]))

    return formula


def of_solver(attribute: Callable[[Solver], float]) -> Callable[[Columns], Any]:
    """A number derived from the solver's name."""

    def formula(c: Columns) -> Any:
        values = np.array([float(attribute(parse_solver(str(name)))) for name in c["solver_names"]])
        return values[c["solver_rows"]]

    return formula


def _output(size: str, taps: str, axis: str) -> Callable[[Columns], Any]:
    def formula(c: Columns) -> Any:
        effective = (c[taps] - 1) * c[f"dilation_{axis}"] + 1
        return np.maximum((c[size] + 2 * c[f"pad_{axis}"] - effective) // c[f"stride_{axis}"] + 1, 1)

    return formula


def _winograd_work(c: Columns) -> Any:
    """Multiplications of the Winograd tiles over those of the direct convolution; 0 for other solvers.

    Tiles of F(m, r) yield m outputs from r taps with m + r - 1 multiplications per axis, and are computed whole.
    """
    work: Any = 1.0
    for axis in ("h", "w"):
        tile, taps = np.maximum(c[f"winograd_tile_{axis}"], 1), np.maximum(c[f"winograd_taps_{axis}"], 1)
        size, filter_size = np.maximum(c[f"result_{axis}"], 1), np.maximum(c[f"operand_{axis}"], 1)
        per_tile = (tile + taps - 1) * np.ceil(size / tile) * np.ceil(filter_size / taps)
        work = work * per_tile / (size * filter_size)
    return np.where(c["winograd_tile_h"] > 0, work, 0.0)


def _is_nchw(c: Columns) -> Any:
    return ~np.char.endswith(c.raw("layout").astype(str), "c")


def _only_if(condition: str, quantity: str) -> Callable[[Columns], Any]:
    return lambda c: np.where(c[condition] > 0, c[quantity], 0.0)


def _transposed_bytes(c: Columns) -> Any:
    """Bytes of the tensors that an NHWC solver transposes before and after; 0 if the problem has that layout."""
    return np.where((c["is_nhwc_solver"] > 0) & c["is_nchw"], c["bytes"], 0.0)


DERIVED: dict[str, Callable[[Columns], Any]] = {
    "direction": lambda c: c.codes("variant", DIRECTIONS, UNKNOWN),
    "dtype_code": lambda c: c.codes("dtype", DTYPES, UNKNOWN),
    "is_nchw": _is_nchw,
    "bytes_per_element": lambda c: c.codes("dtype", DTYPE_BYTES, 4.0),
    "Do": _output("Di", "Z", "d"),
    "Ho": _output("Hi", "Y", "h"),
    "Wo": _output("Wi", "X", "w"),
    "c_per_group": lambda c: c["C"] / c["G"],
    "k_per_group": lambda c: c["K"] / c["G"],
    "taps": product("Z", "Y", "X"),
    "input_pixels": product("Di", "Hi", "Wi"),
    "output_pixels": product("Do", "Ho", "Wo"),
    "all_input_pixels": product("N", "input_pixels"),
    "all_output_pixels": product("N", "output_pixels"),
    "reduction_c": product("taps", "c_per_group"),
    "reduction_k": product("taps", "k_per_group"),
    "flops": lambda c: 2 * c["all_output_pixels"] * c["K"] * c["reduction_c"],
    "x_bytes": product("all_input_pixels", "C", "bytes_per_element"),
    "w_bytes": product("K", "reduction_c", "bytes_per_element"),
    "y_bytes": product("all_output_pixels", "K", "bytes_per_element"),
    "w_elements": product("K", "reduction_c"),
    "x_elements": product("all_input_pixels", "C"),
    "y_elements": product("all_output_pixels", "K"),
    # Independent of the batch of a layer.
    "image_flops": lambda c: c["flops"] / c["N"],
    "image_bytes": lambda c: (c["x_bytes"] + c["y_bytes"]) / c["N"],
    "bytes": lambda c: c["x_bytes"] + c["w_bytes"] + c["y_bytes"],
    # The implicit GEMM of one group in the problem's own direction: `ConvProblem.gemm_sizes`.
    "gemm_m": by_direction("all_output_pixels", "all_input_pixels", "k_per_group"),
    "gemm_n": by_direction("k_per_group", "c_per_group", "reduction_c"),
    "gemm_k": by_direction("reduction_c", "reduction_k", "all_output_pixels"),
    # The GEMM of one image and group, as in solvers that call BLAS; its other dimension is the output's pixels.
    "blas_m": by_direction("k_per_group", "reduction_c", "k_per_group"),
    "blas_n": by_direction("output_pixels", "output_pixels", "reduction_c"),
    "blas_k": by_direction("reduction_c", "k_per_group", "output_pixels"),
    "image_groups": product("N", "G"),
    "im2col_bytes": product("G", "reduction_c", "output_pixels", "bytes_per_element"),
    "result_h": by_direction("Ho", "Hi", "Y"),
    "result_w": by_direction("Wo", "Wi", "X"),
    "operand_h": by_direction("Y", "Y", "Ho"),
    "operand_w": by_direction("X", "X", "Wo"),
    "solver_names": lambda c: np.unique(c.raw("kernel").astype(str)),
    "solver_rows": lambda c: np.searchsorted(c["solver_names"], c.raw("kernel").astype(str)),
    "is_nhwc_solver": of_solver(lambda s: s.is_nhwc),
    "is_blas": of_solver(lambda s: s.algorithm is Algorithm.GEMM),
    "winograd_tile_h": of_solver(lambda s: s.tile_h),
    "winograd_tile_w": of_solver(lambda s: s.tile_w),
    "winograd_taps_h": of_solver(lambda s: s.taps_h),
    "winograd_taps_w": of_solver(lambda s: s.taps_w),
    "winograd_work": _winograd_work,
    "transposed_bytes": _transposed_bytes,
    "solver_im2col_bytes": _only_if("is_blas", "im2col_bytes"),
    "solver_image_groups": _only_if("is_blas", "image_groups"),
}


# Block tiles that tuned kernels choose from.
_TUNED_TILES = (
    *((256, 256), (256, 128), (128, 256), (256, 64), (64, 256), (128, 128), (128, 64), (64, 128), (256, 32), (32, 256)),
    *((64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (64, 16), (16, 64)),
)
# A tile of a x b takes this share more time for each of 1 / a and 1 / b: small tiles load more per product.
_LOADS = 24.0
_LARGEST_EXACT_TILE = 256.0


def _tuned_work(m: str, n: str, batch: str) -> Callable[[Columns], Any]:
    """Work of the best of `_TUNED_TILES` in whole waves over the compute units, relative to the required work."""

    def work_of(c: Columns, tile_m: int, tile_n: int) -> Any:
        waves = np.ceil(np.ceil(c[m] / tile_m) * np.ceil(c[n] / tile_n) * c[batch] / c["hw_num_cus"])
        return waves * tile_m * tile_n * (1 + _LOADS * (1 / tile_m + 1 / tile_n))

    def formula(c: Columns) -> Any:
        best = reduce(np.minimum, (work_of(c, *tile) for tile in _TUNED_TILES))
        return best * c["hw_num_cus"] / (c[m] * c[n] * c[batch])

    return formula


def _exact_tile(c: Columns) -> Any:
    """Area of the largest tile whose sides are powers of two up to 256 that divide the GEMM's sizes."""
    sides = [power_of_two_in(c[side], _LARGEST_EXACT_TILE) for side in ("gemm_m", "gemm_n")]
    return sides[0] * sides[1]


TILES: dict[str, Callable[[Columns], Any]] = {
    "tuned_gemm_work": _tuned_work("gemm_m", "gemm_n", "G"),
    # Per image: the calls run one after another.
    "tuned_blas_work": _tuned_work("blas_m", "blas_n", "one"),
    "one": lambda _: np.ones(1),
    "exact_tile": _exact_tile,
    "exact_tiles_per_cu": lambda c: c["gemm_m"] * c["gemm_n"] * c["G"] / (c["exact_tile"] * c["hw_num_cus"]),
}


OP_TYPE = "miopen_conv"
_LOG2_SIZES = (
    *("N", "C", "K", "G", "c_per_group", "k_per_group", "input_pixels", "output_pixels", "taps"),
    *("gemm_m", "gemm_n", "gemm_k", "blas_m", "blas_n", "blas_k", "image_groups", "flops"),
    *("image_flops", "image_bytes", "w_elements", "x_elements", "y_elements"),
)
_LOG2_BYTES = ("x_bytes", "w_bytes", "y_bytes", "im2col_bytes")
_ALIGNED = (
    *("N", "c_per_group", "k_per_group", "Wi", "Wo", "input_pixels", "output_pixels"),
    *("gemm_m", "gemm_n", "gemm_k"),
)
_DIVIDED = ("gemm_m", "gemm_n", "gemm_k", "C", "K", "input_pixels", "output_pixels", "N")
_MOST_DIVISOR = 4096.0
_FILLED = (("Wo", 16), ("Wo", 32), ("Wo", 64), ("Ho", 4), ("Ho", 8), ("output_pixels", 64), ("gemm_k", 32))
# Block tiles whose number and utilization are features; solvers choose among similar ones.
_TILES = ((256, 128), (128, 128), (64, 64), (32, 32))
_3X3, _5X5 = 3, 5


def _all_one(*names: str) -> Callable[[Columns], Any]:
    return lambda c: np.logical_and.reduce(np.broadcast_arrays(*(c[name] == 1 for name in names)))


def _is_same(c: Columns) -> Any:
    """True if padding preserves height and width, apart from the stride."""
    return ((c["Y"] - 1) * c["dilation_h"] == 2 * c["pad_h"]) & ((c["X"] - 1) * c["dilation_w"] == 2 * c["pad_w"])


def _tiles(m: str, n: str, batch: str, tile: tuple[int, int]) -> Callable[[Columns], Any]:
    return lambda c: np.ceil(c[m] / tile[0]) * np.ceil(c[n] / tile[1]) * c[batch]


def _per_cu(m: str, n: str, batch: str, tile: tuple[int, int]) -> Callable[[Columns], Any]:
    return lambda c: _tiles(m, n, batch, tile)(c) / c["hw_num_cus"]


def _last_wave(m: str, n: str, batch: str, tile: tuple[int, int]) -> Callable[[Columns], Any]:
    """Utilization of the compute units by the tiles, in whole waves of one tile per unit."""

    def formula(c: Columns) -> Any:
        waves = _per_cu(m, n, batch, tile)(c)
        return waves / np.ceil(waves)

    return formula


def _fill(m: str, n: str, batch: str, tile: tuple[int, int]) -> Callable[[Columns], Any]:
    return lambda c: c[m] * c[n] * c[batch] / (_tiles(m, n, batch, tile)(c) * tile[0] * tile[1])


def _tile_features() -> tuple[Feature, ...]:
    made = []
    for name, sides in (("gemm", ("gemm_m", "gemm_n", "G")), ("blas", ("blas_m", "blas_n", "image_groups"))):
        for tile in _TILES:
            text = f"{name}_{tile[0]}x{tile[1]}"
            made += [
                Feature(f"{text}_tiles_per_cu", "tiles/CU", _per_cu(*sides, tile)),
                Feature(f"{text}_last_wave", "", _last_wave(*sides, tile)),
                Feature(f"{text}_fill", "", _fill(*sides, tile)),
            ]
    return tuple(made)


def _code(kind: type[StrEnum], attribute: str) -> Callable[[Columns], Any]:
    order = {value: float(code) for code, value in enumerate(kind)}
    return of_solver(lambda solver: order[getattr(solver, attribute)])


def _number(attribute: str) -> Callable[[Columns], Any]:
    return of_solver(lambda solver: float(getattr(solver, attribute)))


def _exact_last_wave(c: Columns) -> Any:
    return c["exact_tiles_per_cu"] / np.ceil(c["exact_tiles_per_cu"])


def _log2_per_cu(c: Columns) -> Any:
    return np.log2(np.maximum(c["flops"], 1) / c["hw_num_cus"])


_PROBLEM_FEATURES = (
    Feature("direction", "category", raw("direction")),
    Feature("dtype", "category", raw("dtype_code")),
    Feature("is_nchw", "", raw("is_nchw")),
    Feature("ndim_spatial", "", raw("ndim_spatial")),
    *(Feature(name, "", raw(name)) for name in CONV_COLUMNS),
    *(Feature(name, "", raw(name)) for name in ("Do", "Ho", "Wo")),
    *(Feature(f"log2_{name}", "log2", log2_of(name)) for name in _LOG2_SIZES),
    *(Feature(f"log2_{name}", "log2 bytes", log2_of(name)) for name in _LOG2_BYTES),
    *(Feature(f"aligned_{name}", "log2", alignment_of(name)) for name in _ALIGNED),
    Feature("arithmetic_intensity", "flop/byte", ratio("flops", "bytes")),
    Feature("w_share", "", ratio("w_bytes", "bytes")),
    Feature("y_share", "", ratio("y_bytes", "bytes")),
    Feature("k_by_c", "", ratio("K", "C")),
    Feature("is_1x1", "", _all_one("Z", "Y", "X")),
    Feature("is_3x3", "", lambda c: (c["Y"] == _3X3) & (c["X"] == _3X3)),
    Feature("is_large_filter", "", lambda c: np.maximum(c["Y"], c["X"]) >= _5X5),
    Feature("has_unit_stride", "", _all_one("stride_d", "stride_h", "stride_w")),
    Feature("is_dilated", "", lambda c: ~_all_one("dilation_d", "dilation_h", "dilation_w")(c)),
    Feature("keeps_size", "", _is_same),
    Feature("is_depthwise", "", lambda c: (c["G"] > 1) & (c["c_per_group"] == 1)),
    Feature("channels", "", lambda c: c["C"] + c["K"]),
    Feature("log2_pixels_by_channels", "log2", lambda c: np.log2(c["input_pixels"] / c["C"])),
    Feature("h_by_w", "", ratio("Hi", "Wi")),
    *(Feature(f"divisor_{name}", "log2", alignment_of(name, _MOST_DIVISOR)) for name in _DIVIDED),
    *(Feature(f"{name}_{tile}_fill", "", fill_of(name, tile)) for name, tile in _FILLED),
    Feature("exact_tiles_per_cu", "tiles/CU", raw("exact_tiles_per_cu")),
    Feature("exact_last_wave", "", _exact_last_wave),
    Feature("log2_exact_tile", "log2", log2_of("exact_tile")),
    Feature("tuned_gemm_work", "", raw("tuned_gemm_work")),
    Feature("tuned_blas_work", "", raw("tuned_blas_work")),
    Feature("blas_by_gemm_work", "", lambda c: c["tuned_blas_work"] / c["tuned_gemm_work"]),
    *_tile_features(),
    Feature("log2_flops_per_cu", "log2", _log2_per_cu),
)
_SOLVER_FEATURES = (
    Feature("solver", "category", _number("id")),
    Feature("algorithm", "", _code(Algorithm, "algorithm")),
    Feature("origin", "", _code(SolverOrigin, "origin")),
    Feature("math_unit", "", _code(MathUnit, "unit")),
    Feature("serves", "", _code(Serves, "serves")),
    *(Feature(f"solver_{name}", "", _number(name)) for name in ("is_nhwc", "is_1x1", "is_padded", "is_grouped")),
    *(Feature(f"solver_{name}", "", _number(name)) for name in ("version", "tile_h", "taps_h", "batches")),
)
_BOTH_FEATURES = (
    Feature("winograd_work", "", raw("winograd_work")),
    Feature("log2_transposed_bytes", "log2 bytes", log2_of("transposed_bytes")),
    Feature("transposed_by_flops", "byte/flop", ratio("transposed_bytes", "flops")),
    Feature("log2_solver_im2col_bytes", "log2 bytes", log2_of("solver_im2col_bytes")),
    Feature("log2_solver_image_groups", "log2", log2_of("solver_image_groups")),
)
_HARDWARE_FEATURES = (Feature("hw_num_cus", "", raw("hw_num_cus")),)

MIOPEN_CONV = FeatureEngine(
    op_type=OP_TYPE,
    features=(*_PROBLEM_FEATURES, *_SOLVER_FEATURES, *_BOTH_FEATURES, *_HARDWARE_FEATURES),
    categorical=("direction", "dtype", "solver"),
    derived=DERIVED | TILES,
    defaults={},
    kernel_columns=frozenset({"kernel"}),
)

# Raw columns that the features read, besides the hardware profile. `kernel` is the solver's name.
INPUT_COLUMNS: tuple[str, ...] = (*CONV_COLUMNS, "variant", "dtype", "layout", "ndim_spatial", "kernel")
