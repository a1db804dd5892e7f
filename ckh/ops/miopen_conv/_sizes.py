"""Quantities of a problem and of a solver on it that several features share, as formulas over columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ops.miopen_conv.kernels.solvers import Algorithm, Solver, parse_solver
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.features.engine import Columns

DIRECTIONS = {str(direction): float(code) for code, direction in enumerate(Direction)}
DTYPES = {name: float(code) for code, name in enumerate(("fp32", "fp16", "bf16", "int8"))}
UNKNOWN = -1.0


def raw(name: str) -> Callable[[Columns], Any]:
    """A column or quantity as it is."""
    return lambda c: c[name]


def log2_of(name: str) -> Callable[[Columns], Any]:
    """Its base-2 logarithm, of at least 1."""
    return lambda c: np.log2(np.maximum(c[name], 1))


def product(*names: str) -> Callable[[Columns], Any]:
    """The product of quantities."""

    def formula(c: Columns) -> Any:
        result: Any = 1.0
        for name in names:
            result = result * c[name]
        return result

    return formula


def ratio(above: str, below: str) -> Callable[[Columns], Any]:
    """One by another, which counts as at least 1."""
    return lambda c: c[above] / np.maximum(c[below], 1)


def power_of_two_in(values: Any, most: float) -> Any:
    """The greatest power of two up to `most` that divides each value, which counts as at least 1."""
    whole = np.maximum(values, 1).astype(np.int64)
    return np.minimum(whole & -whole, most)


def alignment_of(name: str, most: float = 64.0) -> Callable[[Columns], Any]:
    """Base-2 logarithm of `power_of_two_in`: n or more means divisible by 2^n."""
    return lambda c: np.log2(power_of_two_in(c[name], most))


def fill_of(name: str, tile: int) -> Callable[[Columns], Any]:
    """The share of whole tiles that a quantity fills."""
    return lambda c: c[name] / (np.ceil(c[name] / tile) * tile)


def by_direction(forward: str, bwd_data: str, bwd_weight: str) -> Callable[[Columns], Any]:
    """One of three quantities, by the problem's direction."""

    def formula(c: Columns) -> Any:
        code = c["direction"]
        return np.where(code == 0, c[forward], np.where(code == 1, c[bwd_data], c[bwd_weight]))

    return formula


def of_solver(attribute: Callable[[Solver], float]) -> Callable[[Columns], Any]:
    """A number that the solver's name gives."""

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

    Tiles of F(m, r) yield m outputs from r taps with m + r - 1 multiplications per axis, and are whole.
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
    """Bytes of the tensors that an NHWC solver transposes first or last; 0 if the problem has that layout."""
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
    # What batches of one layer have in common.
    "image_flops": lambda c: c["flops"] / c["N"],
    "image_bytes": lambda c: (c["x_bytes"] + c["y_bytes"]) / c["N"],
    "bytes": lambda c: c["x_bytes"] + c["w_bytes"] + c["y_bytes"],
    # The implicit GEMM of one group in the problem's own direction: `ConvProblem.gemm_sizes`.
    "gemm_m": by_direction("all_output_pixels", "all_input_pixels", "k_per_group"),
    "gemm_n": by_direction("k_per_group", "c_per_group", "reduction_c"),
    "gemm_k": by_direction("reduction_c", "reduction_k", "all_output_pixels"),
    # The GEMM of one image and group, as the solvers that call BLAS see it; its other side is the output's pixels.
    "blas_m": by_direction("k_per_group", "reduction_c", "k_per_group"),
    "blas_n": by_direction("output_pixels", "output_pixels", "reduction_c"),
    "blas_k": by_direction("reduction_c", "k_per_group", "output_pixels"),
    "image_groups": product("N", "G"),
    "im2col_bytes": product("G", "reduction_c", "output_pixels", "bytes_per_element"),
    "result_h": by_direction("Ho", "Hi", "Y"),
    "result_w": by_direction("Wo", "Wi", "X"),
    "operand_h": by_direction("Y", "Y", "Ho"),
    "operand_w": by_direction("X", "X", "Wo"),
    "solver_names": lambda c: np.unique(c.raw("kernel_name").astype(str)),
    "solver_rows": lambda c: np.searchsorted(c["solver_names"], c.raw("kernel_name").astype(str)),
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
