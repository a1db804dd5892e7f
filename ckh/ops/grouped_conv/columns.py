"""The dataset's columns of convolutions: what a problem is, and what a kernel."""

from __future__ import annotations

from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.schema import Column, dataset_columns

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
