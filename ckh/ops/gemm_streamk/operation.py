"""The operation `gemm_streamk`: `gemm_universal` with two more fields of kernels.

Names of kernels state how partial sums are reduced and the number of blocks per compute unit first:
`gemm_streamk_atomic_2_fp16_rcr_...`. Names of AMD's tile engine, which state the reduction before the tile and no
number of blocks, are parsed too.

Source of the pools: the configuration of AMD's tile engine for these GEMMs, which has `gemm_universal`'s tiles, waves
and instructions with one pipeline, compv3; persistent kernels and both reductions included. The number of blocks per
compute unit is an argument of CK Tile's launch, with the number that a unit holds as its default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.kernels.declaration import named, number, word
from ckh.ops.gemm_streamk.problem import OP_TYPE, PREFIX, GemmStreamKProblem
from ckh.ops.gemm_universal.derived import derived
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.kernel import GemmKernel, parser_of
from ckh.ops.gemm_universal.kernels.family import KernelFamily
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, rules_with
from ckh.ops.gemm_universal.problem import output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.features.engine import Columns
    from ckh.kernels.judging import Rules


# Name -> CK Tile's enumerator. Blocks add to C by atomic operations, or the block that begins a tile adds the partial
# sums that the others stored.
REDUCTIONS = {"atomic": "Atomic", "reduction": "Reduction"}
ALL_HELD = 0
MOST_BLOCKS = 16


@dataclass(frozen=True, slots=True, order=True)
class GemmStreamKKernel(GemmKernel):
    """A kernel whose blocks share tiles."""

    op_type = OP_TYPE

    reduction: str = field(
        default="atomic",
        metadata=named(word("reduction", REDUCTIONS), "how partial sums become a result: atomic, reduction"),
    )
    blocks_per_cu: int = field(
        default=1,
        metadata=named(
            number("blocks per compute unit", "(?:0|[1-9][0-9]?)"),
            "blocks per compute unit that share tiles, 0: as many as it holds",
        ),
    )


_FIELDS = ("reduction", "blocks_per_cu")
_parse = parser_of(GemmStreamKKernel, OP_TYPE, *_FIELDS)
# "linear" is the later name of CK Tile's reduction of 2025.
_AMD = re.compile(rf"{PREFIX}(?P<kind>\w+?)_(?P<reduction>atomic|reduction|linear)_(?P<sizes>[0-9]+x.*)")


def parse_streamk_kernel(text: str) -> GemmStreamKKernel:
    """Parse a kernel's name."""
    if matched := _AMD.fullmatch(text):
        reduction = "atomic" if matched["reduction"] == "atomic" else "reduction"
        return _parse(f"{PREFIX}{reduction}_{ALL_HELD}_{matched['kind']}_{matched['sizes']}")
    return _parse(text)


OWN = (_FIELDS, list(product(REDUCTIONS, (1, 2))))
_LISTED = (_FIELDS, list(product(REDUCTIONS, (ALL_HELD,))))  # of a configuration of the tile engine
_PAIRED_BYTES = 2  # elements of this size are added in pairs

rule = BOOK.rule


@rule
def _on_a_gpu(arch: ArchSpec) -> Iterator[str]:
    if not arch.is_gpu:
        yield "the host device has no Stream-K kernels"


@rule
def _blocks(blocks_per_cu: int) -> Iterator[str]:
    if not 0 <= blocks_per_cu <= MOST_BLOCKS:
        yield f"{blocks_per_cu} blocks per compute unit are not 0 (as many as it holds) to {MOST_BLOCKS}"


@rule
def _pairs(dtype: str, reduction: str, epilogue: str | None, vector_c: int | None) -> Iterator[str]:
    if reduction != "atomic" or DTYPE_BYTES.get(output_dtype(dtype)) != _PAIRED_BYTES:
        return
    if epilogue == "default" or vector_c == 1:
        yield f"parts of K are added in pairs to {output_dtype(dtype)} results, which this kernel stores one by one"


@rule
def _whole_steps(problem: GemmStreamKProblem, tile: Triple) -> Iterator[str]:
    if problem.k % tile[2]:
        yield f"K = {problem.k} is not a multiple of tile_k {tile[2]}: a part of K would read beyond it"


@rule
def _rows_in_c(problem: GemmStreamKProblem, dtype: str, tile: Triple, reduction: str) -> Iterator[str]:
    if reduction == "atomic" and output_dtype(dtype) == "bf16" and problem.m % tile[0]:
        yield f"M = {problem.m} is not a multiple of tile_m {tile[0]}: bf16 would be added beyond the end of C"


STREAMK_RULES: Rules[GemmStreamKKernel] = rules_with(
    (_on_a_gpu,), complete=(_blocks, _pairs), problem=(_whole_steps, _rows_in_c)
)
FAMILY = KernelFamily(GemmStreamKKernel, STREAMK_RULES, parse_streamk_kernel, ("compv3",), own=OWN, listed=_LISTED)
POOLS = FAMILY.pools


_CODES = {name: float(code) for code, name in enumerate(REDUCTIONS)}


def _grid(c: Columns) -> Any:
    """Blocks that share tiles; where a compute unit decides how many it holds, one each."""
    return np.maximum(c["hw_num_cus"], 1) * np.maximum(c["blocks_per_cu"], 1)


def _shared_tiles(c: Columns) -> Any:
    """Tiles that blocks share: those of the last, incomplete turn of the grid and of the one before; all or none."""
    tiles, grid = c["total_output_tiles"], c["streamk_grid"]
    rest = np.mod(tiles, grid)
    shared = np.where(tiles > grid, grid + rest, tiles)
    return np.where((rest > 0) & (shared * c["num_tiles_k"] >= grid), shared, 0.0)


def _steps_per_block(c: Columns) -> Any:
    return c["streamk_tiles"] * c["num_tiles_k"] / c["streamk_grid"]


def _parts_per_tile(c: Columns) -> Any:
    """Blocks that share a tile, about."""
    return np.where(c["streamk_steps"] > 0, c["num_tiles_k"] / np.maximum(c["streamk_steps"], 1), 1.0)


_FEATURES = (
    Feature("reduction", "category", lambda c: c.codes("reduction", _CODES, 0.0)),
    Feature("blocks_per_cu", "", lambda c: c["blocks_per_cu"]),
    Feature("streamk_tiles", "tiles", lambda c: c["streamk_tiles"]),
    Feature("streamk_share", "", lambda c: c["streamk_tiles"] / np.maximum(c["total_output_tiles"], 1)),
    Feature("streamk_steps", "steps", lambda c: c["streamk_steps"]),
    Feature("streamk_parts", "", _parts_per_tile),
)

GEMM_STREAMK = GEMM_UNIVERSAL.extended(
    OP_TYPE,
    _FEATURES,
    categorical=("reduction",),
    derived={"streamk_grid": _grid, "streamk_tiles": _shared_tiles, "streamk_steps": _steps_per_block},
    kernel_columns=frozenset(_FIELDS),
)

OPERATION = derived(
    __name__,
    "matrix products whose blocks share tiles",
    GemmStreamKProblem,
    FAMILY,
    GEMM_STREAMK,
    {},
    table_sizes=("m", "n", "k"),
)
