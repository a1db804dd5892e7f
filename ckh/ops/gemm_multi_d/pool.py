"""Kernels with further tensors: names, rules and pools.

Names are those of `GemmKernel` with another beginning, which states the function and the number of tensors:
`gemm_multi_d_add_relu_2_fp16_rcr_...`.

Source of the pools: the configuration of AMD's tile engine for these GEMMs, which has `gemm_universal`'s tiles, waves
and instructions with three pipelines; persistent kernels included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.kernels.name_grammar import either
from ckh.ops.gemm_multi_d.problem import DTYPES, FUNCTIONS, MAX_TENSORS, PREFIX
from ckh.ops.gemm_universal.kernel import GROUP_FIELDS, GemmKernel
from ckh.ops.gemm_universal.kernels.names import parser_of
from ckh.ops.gemm_universal.kernels.pool import pools_of
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, rule_key, rules_with
from ckh.ops.gemm_universal.kernels.search_space import NarrowedSpaces, searched_in
from ckh.ops.gemm_universal.kernels.vectors import store_width

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem


@dataclass(frozen=True, slots=True, order=True)
class GemmMultiDKernel(GemmKernel):
    """A kernel whose epilogue applies a function.

    Attributes:
        function: one of `FUNCTIONS`.
        num_d: number of further tensors.
    """

    group_fields = (*GROUP_FIELDS, "function", "num_d")

    function: str = "add"
    num_d: int = 1

    @property
    def op_type(self) -> str:  # type: ignore[override]
        """First part of names."""
        return f"{PREFIX}{self.function}_{self.num_d}"


_HEAD = rf"{PREFIX}(?P<function>{either(FUNCTIONS)})_(?P<num_d>[1-{MAX_TENSORS}])"
parse_multi_d_kernel = parser_of(
    GemmMultiDKernel, _HEAD, lambda match: {"function": match["function"], "num_d": int(match["num_d"])}
)

SPACES = NarrowedSpaces(("compv3", "compv4", "mem"))

rule = BOOK.rule


@rule
def _same_epilogue(problem: GemmMultiDProblem, function: str, num_d: int) -> Iterator[str]:
    if function != problem.function:
        yield f"a kernel of {function} cannot compute {problem.function}"
    if num_d != problem.num_d:
        yield f"a kernel of {num_d} further tensors cannot run a problem of {problem.num_d}"


@rule
def _whole_d(
    arch: ArchSpec, problem: GemmMultiDProblem, epilogue: str | None, dtype: str, wave_n: int, warp_tile_n: int
) -> Iterator[str]:
    """Further tensors are read in native vectors of C, whatever vectors of C a kernel stores."""
    width = store_width(epilogue, dtype, wave_n, warp_tile_n)
    if arch.is_gpu and problem.n % width:
        yield f"N = {problem.n} is not a multiple of the {width} elements of a further tensor that are read at once"


@rule
def _on_a_gpu(arch: ArchSpec) -> Iterator[str]:
    if not arch.is_gpu:
        yield "the host device has no epilogues with further tensors"


@rule
def _floats(dtype: str) -> Iterator[str]:
    if dtype not in DTYPES:
        yield f"epilogues with further tensors are in floating point, not {dtype}"


MULTI_D_RULES: Rules[GemmMultiDKernel] = rules_with((_on_a_gpu, _floats), problem=(_same_epilogue, _whole_d))
POOLS = pools_of(GemmMultiDKernel, MULTI_D_RULES, parse_multi_d_kernel, SPACES.pool)
BENCH_POOLS = pools_of(GemmMultiDKernel, MULTI_D_RULES, parse_multi_d_kernel, SPACES.bench)
SEARCHED = searched_in(SPACES.search, MULTI_D_RULES, GemmMultiDKernel)


def multi_d_rule_key(problem: GemmMultiDProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    return rule_key(problem), problem.function, problem.num_d
