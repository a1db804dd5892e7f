"""The raw columns of a problem and of kernels, as the feature engines read them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.table import column_of
from ckh.ops.grouped_conv.problem import CONV_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

# Column -> kernel field. Our data carry the true meaning; AMD's conv data and models call a name's
# tile_m x tile_n x tile_k block_size x gemm_m x gemm_n.
TRUE_TILES: dict[str, str] = {"block_size": "tile_k", "gemm_m_per_block": "tile_m", "gemm_n_per_block": "tile_n"}
LEGACY_TILES: dict[str, str] = {"block_size": "tile_m", "gemm_m_per_block": "tile_n", "gemm_n_per_block": "tile_k"}


_sizes_of = attrgetter(*CONV_COLUMNS.values())


def problem_columns(problems: Sequence[ConvProblem]) -> dict[str, Any]:
    """One row per problem: the sizes under AMD's column names, direction and dtype."""
    rows = np.array([_sizes_of(problem) for problem in problems], np.float64)
    sizes = dict(zip(CONV_COLUMNS, np.ascontiguousarray(rows.T), strict=True))
    variants = np.array([str(problem.variant) for problem in problems])
    return sizes | {"variant": variants, "dtype": np.array([problem.dtype for problem in problems])}


def kernel_columns(kernels: Sequence[ConvKernel], *, legacy_tiles: bool = False) -> dict[str, Any]:
    """One row per kernel; `legacy_tiles` names the tiles as AMD's models were trained with."""
    naming = LEGACY_TILES if legacy_tiles else TRUE_TILES
    return {
        **{column: column_of(kernels, field).astype(np.float64) for column, field in naming.items()},
        "pipeline": column_of(kernels, "pipeline").astype(np.str_),
        "wave_mode": column_of(kernels, "scheduler").astype(np.str_),
        "has_dsb": column_of(kernels, "double_smem_buffer").astype(np.float64),
        "has_si": column_of(kernels, "split_image").astype(np.float64),
    }


def legacy_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Dataset columns with the tiles named as AMD's models were trained with."""
    return {**columns, **{column: columns[field] for column, field in LEGACY_TILES.items()}}
