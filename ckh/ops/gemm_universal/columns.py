"""Raw columns of GEMM problems and kernels, the input of the features.

AMD's data call waves per block `warp_m`, `warp_n`, `warp_k`; ckh calls them `wave_*`, since elsewhere AMD uses `warp_*`
for the warp tile. `from_amd` renames AMD's columns.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.pipelines import MARKED_PADDED_PIPELINES
from ckh.kernels.table import column_of
from ckh.ops.gemm_universal.problem import GemmProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.ops.gemm_universal.kernel import GemmKernel

PROBLEM_COLUMNS: tuple[str, ...] = ("m", "n", "k", "split_k", "dtype", "layout")
_SIZES: tuple[str, ...] = tuple(f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk")
_TEXTS: tuple[str, ...] = ("pipeline", "scheduler", "epilogue")
_PADS: tuple[str, ...] = ("pad_m", "pad_n", "pad_k")
KERNEL_COLUMNS: tuple[str, ...] = (*_SIZES, *_TEXTS, *_PADS, "persistent")

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
    texts = {name: column_of(kernels, name).astype(np.str_) for name in _TEXTS}
    as_padded = np.isin(texts["pipeline"], list(MARKED_PADDED_PIPELINES)) & mem_is_padded
    return {
        **{name: column_of(kernels, name).astype(np.float64) for name in (*_SIZES, "persistent")},
        **texts,
        **{name: (column_of(kernels, name).astype(np.bool_) | as_padded).astype(np.float64) for name in _PADS},
    }


def from_amd(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the columns of AMD's GEMM data to ckh's."""
    return {AMD_WAVES.get(name, name): values for name, values in columns.items()}
