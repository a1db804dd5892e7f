"""Columns of convolutions: of datasets, and the raw columns that the feature engines read."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.table import column_of
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, ConvProblem
from ckh.schema import Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ckh.ops.grouped_conv.kernel import ConvKernel

CONV_IDENTITY_COLUMNS = (
    Column("variant", "string", "", "forward, bwd_data or bwd_weight"),
    Column("dtype", "string", "", "element type of the tensors"),
    Column("layout", "string", "", "layout of the tensors"),
    Column("ndim_spatial", "int64", "", "2 or 3"),
)
CONV_SIZES = tuple(Column(name, "int64", "", f"problem size {name}") for name in CONV_COLUMNS)
_CONV_KERNEL = (
    Column("tile_m", "int64", "elements", "block tile along M of the implicit GEMM"),
    Column("tile_n", "int64", "elements", "block tile along N"),
    Column("tile_k", "int64", "elements", "block tile along K"),
    Column("block_size", "int64", "elements", "tile_k, under the name the feature engine uses"),
    Column("gemm_m_per_block", "int64", "elements", "tile_m, likewise"),
    Column("gemm_n_per_block", "int64", "elements", "tile_n, likewise"),
    Column("pipeline", "string", "", "GEMM pipeline"),
    Column("wave_mode", "string", "", "scheduler: intrawave or interwave"),
    Column("has_dsb", "int64", "", "double smem buffer, 0 or 1"),
    Column("has_si", "int64", "", "split image, 0 or 1"),
    Column("num_groups_to_merge", "int64", "", "groups merged in one GEMM"),
    Column("two_stage", "int64", "", "0 or 1"),
)

CONV_DATASET: tuple[Column, ...] = dataset_columns(CONV_IDENTITY_COLUMNS, CONV_SIZES, _CONV_KERNEL)

# Complete identity of a problem: groups, joins, oracles and splits use exactly these columns.
CONV_IDENTITY: tuple[str, ...] = ("variant", "dtype", "layout", "ndim_spatial", *CONV_COLUMNS)


# Column -> kernel field. ckh's data have the correct meaning; AMD's convolution data and models name the
# tile_m x tile_n x tile_k of a kernel name block_size x gemm_m x gemm_n.
TRUE_TILES: dict[str, str] = {"block_size": "tile_k", "gemm_m_per_block": "tile_m", "gemm_n_per_block": "tile_n"}
LEGACY_TILES: dict[str, str] = {"block_size": "tile_m", "gemm_m_per_block": "tile_n", "gemm_n_per_block": "tile_k"}
# Dataset column -> kernel field.
KERNEL_FIELDS: dict[str, str] = {
    **{name: name for name in ("tile_m", "tile_n", "tile_k")},
    **TRUE_TILES,
    "pipeline": "pipeline",
    "wave_mode": "scheduler",
    "has_dsb": "double_smem_buffer",
    "has_si": "split_image",
    **{name: name for name in ("num_groups_to_merge", "two_stage")},
}
KERNEL_TEXTS = ("pipeline", "wave_mode")


_sizes_of = attrgetter(*CONV_COLUMNS.values())


_FILTER = {"h": "Y", "w": "X", "d": "Z"}
MOVED_COLUMNS = tuple(f"{what}_{axis}" for what in ("stride", "dilation") for axis in _FILTER) + tuple(_FILTER.values())


def moves_all(rows: Mapping[str, Any] | pd.DataFrame) -> NDArray[np.bool_]:
    """Mask of rows whose filters touch all pixels of X: not with gaps between filters, or within them where strided."""
    result = np.ones(len(rows["X"]), dtype=bool)
    for axis, size in _FILTER.items():
        stride = np.asarray(rows[f"stride_{axis}"], dtype=np.int64)
        is_dense = (stride <= np.asarray(rows[size])) & (np.asarray(rows[f"dilation_{axis}"]) == 1)
        result &= (stride == 1) | is_dense
    return result


def problem_of_row(row: Mapping[str, Any], kind: type[Any] = ConvProblem) -> Any:
    """Build a problem of a class from a dataset row."""
    sizes = {name: int(row[column]) for column, name in CONV_COLUMNS.items()}
    named = {name: row[name] for name in ("variant", "dtype", "layout")}
    return kind(**named, ndim=int(row["ndim_spatial"]), **sizes)


def problem_columns(problems: Sequence[ConvProblem]) -> dict[str, Any]:
    """One row per problem: the sizes with AMD's column names, direction and dtype."""
    rows = np.array([_sizes_of(problem) for problem in problems], np.float64)
    sizes = dict(zip(CONV_COLUMNS, np.ascontiguousarray(rows.T), strict=True))
    variants = np.array([str(problem.variant) for problem in problems])
    return sizes | {"variant": variants, "dtype": np.array([problem.dtype for problem in problems])}


def kernel_columns(kernels: Sequence[ConvKernel], *, legacy_tiles: bool = False) -> dict[str, Any]:
    """One row per kernel; `legacy_tiles` names the tiles as in the training data of AMD's models."""
    naming = LEGACY_TILES if legacy_tiles else TRUE_TILES
    return {
        **{column: column_of(kernels, field).astype(np.float64) for column, field in naming.items()},
        "pipeline": column_of(kernels, "pipeline").astype(np.str_),
        "wave_mode": column_of(kernels, "scheduler").astype(np.str_),
        "has_dsb": column_of(kernels, "double_smem_buffer").astype(np.float64),
        "has_si": column_of(kernels, "split_image").astype(np.float64),
    }


def legacy_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the tiles in dataset columns as in the training data of AMD's models."""
    return {**columns, **{column: columns[field] for column, field in LEGACY_TILES.items()}}
