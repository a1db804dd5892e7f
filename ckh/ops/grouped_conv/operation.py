"""Record of the operation `grouped_conv`.

`JUDGED` is the evaluated accuracy of answers on GPUs where CK Tile's convolutions were not measured
(`benchmarks/transfer.py` prints it). CK Tile's convolutions were measured on one GPU, forward and in one element type,
so that no model could be evaluated on another GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log2
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.pools import TIMED_NAME
from ckh.kernels.table import column_of
from ckh.ops.base import Kernels, Operation, Problems, TiledSizes, Training, Worth, called, lazily
from ckh.ops.grouped_conv.features import ESTIMATED, GROUPED_CONV, INPUT_COLUMNS
from ckh.ops.grouped_conv.kernel import ConvKernel, amd_full_name, amd_short_name, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import (
    FEW_CHANNELS_POOLS,
    LEARNED_NAME,
    POOLS,
    learned_file,
    learned_kernels,
    takes_few_channels,
)
from ckh.ops.grouped_conv.kernels.problem_rules import rule_key
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, ConvProblem, parse_conv_problem
from ckh.schema import Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.pools import Candidates, KernelList
    from ckh.ops.base import Encoding


CONV_IDENTITY_COLUMNS = (
    Column("variant", "string", "", "forward, bwd_data or bwd_weight"),
    Column("dtype", "string", "", "element type of the tensors"),
    Column("layout", "string", "", "layout of the tensors"),
    Column("ndim_spatial", "int64", "", "2 or 3"),
)
CONV_SIZES = tuple(Column(name, "int64", "", f"problem size {name}") for name in CONV_COLUMNS)
# Columns of kernels, with the fields that they are of.
KERNEL_COLUMNS: dict[Column, str] = {
    Column("tile_m", "int64", "elements", "block tile along M of the implicit GEMM"): "tile_m",
    Column("tile_n", "int64", "elements", "block tile along N"): "tile_n",
    Column("tile_k", "int64", "elements", "block tile along K"): "tile_k",
    Column("block_size", "int64", "elements", "tile_k, under the name the feature engine uses"): "tile_k",
    Column("gemm_m_per_block", "int64", "elements", "tile_m, likewise"): "tile_m",
    Column("gemm_n_per_block", "int64", "elements", "tile_n, likewise"): "tile_n",
    Column("pipeline", "string", "", "GEMM pipeline"): "pipeline",
    Column("wave_mode", "string", "", "scheduler: intrawave or interwave"): "scheduler",
    Column("has_dsb", "int64", "", "double smem buffer, 0 or 1"): "double_smem_buffer",
    Column("has_si", "int64", "", "split image, 0 or 1"): "split_image",
    Column("num_groups_to_merge", "int64", "", "groups merged in one GEMM"): "num_groups_to_merge",
    Column("two_stage", "int64", "", "0 or 1"): "two_stage",
}

CONV_DATASET: tuple[Column, ...] = dataset_columns(CONV_IDENTITY_COLUMNS, CONV_SIZES, tuple(KERNEL_COLUMNS))

# Complete identity of a problem: groups, joins, oracles and splits use exactly these columns.
CONV_IDENTITY: tuple[str, ...] = ("variant", "dtype", "layout", "ndim_spatial", *CONV_COLUMNS)


# Column -> kernel field: AMD's convolution data and models name the tile_m x tile_n x tile_k of a name block_size
# x gemm_m x gemm_n; ckh's data have the correct meaning.
LEGACY_TILES: dict[str, str] = {"block_size": "tile_m", "gemm_m_per_block": "tile_n", "gemm_n_per_block": "tile_k"}


_sizes_of = attrgetter(*CONV_COLUMNS.values())


_FILTER = {"h": "Y", "w": "X", "d": "Z"}
MOVED_COLUMNS = tuple(f"{what}_{axis}" for what in ("stride", "dilation") for axis in _FILTER) + tuple(_FILTER.values())


def moves_all(rows: Mapping[str, Any] | pd.DataFrame) -> NDArray[np.bool_]:
    """Mask of rows whose filters touch all pixels of X: not with gaps between filters, or within them where strided."""
    moves = np.ones(len(rows["X"]), dtype=bool)
    for axis, size in _FILTER.items():
        stride = np.asarray(rows[f"stride_{axis}"], dtype=np.int64)
        is_dense = (stride <= np.asarray(rows[size])) & (np.asarray(rows[f"dilation_{axis}"]) == 1)
        moves &= (stride == 1) | is_dense
    return moves


def problem_of_row(row: Mapping[str, Any]) -> ConvProblem:
    """Build a problem from a dataset row."""
    fields: dict[str, Any] = {name: int(row[column]) for column, name in CONV_COLUMNS.items()}
    fields |= {name: row[name] for name in ("variant", "dtype", "layout")}
    return ConvProblem(ndim=int(row["ndim_spatial"]), **fields)


def problem_columns(problems: Sequence[ConvProblem]) -> dict[str, Any]:
    """One row per problem: the sizes with AMD's column names, direction and dtype."""
    rows = np.array([_sizes_of(problem) for problem in problems], np.float64)
    sizes = dict(zip(CONV_COLUMNS, np.ascontiguousarray(rows.T), strict=True))
    variants = np.array([str(problem.variant) for problem in problems])
    return sizes | {"variant": variants, "dtype": np.array([problem.dtype for problem in problems])}


def kernel_columns(kernels: Sequence[ConvKernel], *, legacy_tiles: bool = False) -> dict[str, Any]:
    """One row per kernel; `legacy_tiles` names the tiles as in the training data of AMD's models."""
    renamed = LEGACY_TILES if legacy_tiles else {}
    return {
        column.name: column_of(kernels, renamed.get(column.name, field)).astype(
            np.str_ if column.type == "string" else np.float64
        )
        for column, field in KERNEL_COLUMNS.items()
        if column.name in GROUPED_CONV.kernel_columns
    }


def legacy_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the tiles in dataset columns as in the training data of AMD's models."""
    return {**columns, **{column: columns[field] for column, field in LEGACY_TILES.items()}}


JUDGED = (
    Worth(
        of={"variant": "forward"},
        target="gfx950",
        problems=344,
        on="forward convolutions in bf16 with 20 kernels each",
        figures=(0.987, 0.956),
        interval=(0.983, 0.990),
        random=0.677,
        held_out=False,  # the estimate's form was chosen with them
    ),
)


_SMALL_BATCH = 8
_Test = Callable[["ConvProblem"], bool]


def _taps(problem: ConvProblem) -> set[int]:
    """Filter sizes; depth counts only if above 1, so that the 1x3x3 filters of (2+1)D layers have size 3."""
    return {problem.y, problem.x} | ({problem.z} if problem.z > 1 else set())


# Kind of slice -> slice -> membership test of a problem. Slices of one kind do not overlap.
SLICES: dict[str, dict[str, _Test]] = {
    "dimensions": {"2D": lambda p: p.ndim == 2, "3D": lambda p: p.ndim == 3},  # noqa: PLR2004
    "filter": {
        "1x1": lambda p: _taps(p) == {1},
        "3x3": lambda p: _taps(p) == {3},
        "other": lambda p: _taps(p) not in ({1}, {3}),
    },
    "groups": {
        "dense": lambda p: p.g == 1,
        "grouped": lambda p: p.g > 1 and p.c_per_group > 1,
        "depthwise": lambda p: p.g > 1 and p.c_per_group == 1,
    },
    "stride": {
        "unit stride": lambda p: max(p.stride_d, p.stride_h, p.stride_w) == 1,
        "strided": lambda p: max(p.stride_d, p.stride_h, p.stride_w) > 1,
    },
    "batch": {
        "N = 1": lambda p: p.n == 1,
        "N = 2 to 8": lambda p: 1 < p.n <= _SMALL_BATCH,
        "N > 8": lambda p: p.n > _SMALL_BATCH,
    },
}


_WEIGHT_OF_KIND = 4.0  # a factor of 16 in a size counts as much as another stride, dilation or dimension


def _problem_columns(problems: Sequence[ConvProblem]) -> dict[str, list[Any]]:
    sizes = [problem.columns() for problem in problems]
    return {
        "variant": [str(problem.variant) for problem in problems],
        "dtype": [problem.dtype for problem in problems],
        "layout": [problem.layout for problem in problems],
        "ndim_spatial": [problem.ndim for problem in problems],
        **{name: [row[name] for row in sizes] for name in CONV_COLUMNS},
    }


def _kernel_columns(kernels: Sequence[ConvKernel], _encoding: Encoding) -> dict[str, list[Any]]:
    return {
        column.name: [(str if column.type == "string" else int)(value) for value in column_of(kernels, field)]
        for column, field in KERNEL_COLUMNS.items()
    }


def _mismatch(kernel: ConvKernel, problem: ConvProblem) -> str:
    of_kernel = (kernel.variant, kernel.dtype, kernel.ndim_spatial)
    is_same = of_kernel == (problem.variant, problem.dtype, problem.ndim)
    return "" if is_same else f"{amd_short_name(kernel)} on {problem.canonical()}"


def _candidates(
    problem: ConvProblem, arch: ArchSpec, model: Path, only: KernelList[ConvKernel] | None = None
) -> Candidates[ConvKernel]:
    group = arch, problem.variant, problem.ndim, problem.dtype
    if only is not None or not takes_few_channels(problem, arch):
        return POOLS.candidates(problem, *group, model=model, only=only)
    few = FEW_CHANNELS_POOLS.candidates(problem, *group, model=model)
    if few.timed_candidates or not model.is_dir():  # not a folder: the estimate
        return few
    return replace(POOLS.candidates(problem, *group, model=model), unmeasured="few channels per group")


def _place(problem: ConvProblem) -> list[float]:
    """Logarithms of sizes, and the small integers that distinguish kinds of problems."""
    sizes = (problem.n, problem.g, problem.c_per_group, problem.k_per_group, problem.di, problem.hi, problem.wi)
    kind = (problem.z, problem.y, problem.x, problem.stride_d, problem.stride_h, problem.stride_w)
    more = (problem.dilation_d, problem.dilation_h, problem.dilation_w, problem.ndim)
    return [log2(size) for size in sizes] + [_WEIGHT_OF_KIND * log2(size) for size in kind + more]


def _tiled(problem: ConvProblem) -> TiledSizes:
    return TiledSizes(*problem.gemm_sizes, problem.g)


OPERATION = Operation(
    name=GROUPED_CONV.op_type,
    summary="grouped convolutions, forward and backward, 2D and 3D",
    prefix="conv_",
    problems=Problems(
        identity=CONV_IDENTITY,
        sizes=tuple(CONV_COLUMNS),
        parse=parse_conv_problem,
        of_row=problem_of_row,
        columns=_problem_columns,
        features=problem_columns,
        slices=SLICES,
        place=_place,
        split_by=CONV_IDENTITY,
        load=called("ckh.ops.grouped_conv.problem_sets:load_problems"),
        set_names=called("ckh.ops.grouped_conv.problem_sets:set_names"),
        batch="n",
        shaped=lazily("ckh.ops.grouped_conv.shaped:SHAPED"),
        requested=lazily("ckh.ops.grouped_conv.requested:REQUESTED"),
        tiled=_tiled,
    ),
    kernels=Kernels(
        type=ConvKernel,
        parse=parse_kernel_name,
        name=kernel_name,
        other_names=lambda kernel: (amd_full_name(kernel), amd_short_name(kernel)),
        columns=_kernel_columns,
        features=lambda kernels, encoding: kernel_columns(kernels, legacy_tiles=encoding.legacy),
        mismatch=_mismatch,
        candidates=_candidates,
        key_of=rule_key,
        slice_column="pipeline",
        listed=_candidates,
        knows=learned_kernels,
        searched=lazily("ckh.ops.grouped_conv.kernels.search_space:SEARCHED"),
        lists=lazily("ckh.ops.grouped_conv.kernels.amd_lists:LISTS"),
        rule_sets=lazily("ckh.ops.grouped_conv.rules.sets:SETS_OF_CONV"),
    ),
    training=Training(
        columns=CONV_DATASET,
        model_per=("variant", "dtype"),
        engine=GROUPED_CONV,
        input_columns=(*INPUT_COLUMNS, "tile_m", "tile_n", "tile_k"),
        legacy_columns=legacy_columns,
        model_files={LEARNED_NAME: learned_file, TIMED_NAME: POOLS.timed_file},
        needed=lambda rows: (1.0, moves_all(rows)),
        needed_columns=MOVED_COLUMNS,
        formats=lazily("ckh.ops.grouped_conv.amd_csv:FORMATS"),
        estimated=(ESTIMATED,),
        judged=JUDGED,
    ),
    measured=lazily("ckh.ops.grouped_conv.measuring.measured:MEASURED"),
    exported=lazily("ckh.ops.grouped_conv.consumers:EXPORTED"),
    consumers=lazily("ckh.ops.grouped_conv.consumers:CONSUMERS"),
)
