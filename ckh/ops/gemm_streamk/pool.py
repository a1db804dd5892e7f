"""Stream-K kernels: names, rules, pools and lists.

Names are those of `GemmKernel` with another beginning, which states how partial sums are reduced and the number of
blocks per compute unit: `gemm_streamk_atomic_2_fp16_rcr_...`. Names of AMD's tile engine, which state the reduction
before the tile and no number of blocks, are parsed too.

Source of the pools: the configuration of AMD's tile engine for these GEMMs, which has `gemm_universal`'s tiles, waves
and instructions with one pipeline, compv3; persistent kernels and both reductions included. The number of blocks per
compute unit is an argument of CK Tile's launch, with the number that a unit holds as its default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ckh.kernels.name_grammar import either
from ckh.ops.gemm_streamk.problem import OP_TYPE, PREFIX
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of
from ckh.ops.gemm_universal.kernels.names import parser_of
from ckh.ops.gemm_universal.kernels.pool import pools_of
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, rules_with
from ckh.ops.gemm_universal.kernels.search_space import NarrowedSpaces, searched_in
from ckh.ops.gemm_universal.problem import output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.judging import Rules
    from ckh.ops.gemm_streamk.problem import GemmStreamKProblem

# Name -> CK Tile's enumerator. Blocks add to C by atomic operations, or the block that begins a tile adds the partial
# sums that the others stored.
REDUCTIONS = {"atomic": "Atomic", "reduction": "Reduction"}
ALL_HELD = 0
MOST_BLOCKS = 16


@dataclass(frozen=True, slots=True, order=True)
class GemmStreamKKernel(GemmKernel):
    """A kernel whose blocks share tiles.

    Attributes:
        reduction: how partial sums become a result, one of `REDUCTIONS`.
        blocks_per_cu: blocks per compute unit that share tiles; 0: as many as a compute unit holds.
    """

    reduction: str = "atomic"
    blocks_per_cu: int = 1

    @property
    def op_type(self) -> str:  # type: ignore[override]
        """First part of names."""
        return f"{PREFIX}{self.reduction}_{self.blocks_per_cu}"


_HEAD = rf"{PREFIX}(?P<reduction>{either(REDUCTIONS)})_(?P<blocks>0|[1-9][0-9]?)"
_parse = parser_of(
    GemmStreamKKernel,
    _HEAD,
    lambda match: {"reduction": match["reduction"], "blocks_per_cu": int(match["blocks"])},
)
# "linear" is the later name of CK Tile's reduction of 2025.
_AMD = re.compile(rf"{PREFIX}(?P<kind>\w+?)_(?P<reduction>atomic|reduction|linear)_(?P<sizes>[0-9]+x.*)")


def parse_streamk_kernel(text: str) -> GemmStreamKKernel:
    """Parse a kernel's name."""
    if matched := _AMD.fullmatch(text):
        reduction = "atomic" if matched["reduction"] == "atomic" else "reduction"
        return _parse(f"{PREFIX}{reduction}_{ALL_HELD}_{matched['kind']}_{matched['sizes']}")
    return _parse(text)


SPACES = NarrowedSpaces(("compv3",))
_FIELDS = ("reduction", "blocks_per_cu")
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
POOLS = pools_of(GemmStreamKKernel, STREAMK_RULES, parse_streamk_kernel, SPACES.pool, OWN)
BENCH_POOLS = pools_of(GemmStreamKKernel, STREAMK_RULES, parse_streamk_kernel, SPACES.bench, OWN)
SEARCHED = searched_in(SPACES.search, STREAMK_RULES, GemmStreamKKernel, OWN)
LISTS = lists_of(ListedKernels(GemmStreamKKernel, STREAMK_RULES, parse_streamk_kernel, OP_TYPE, left_open=_LISTED))
