"""Rules and pools of kernels with further tensors.

Source of the pools: the configuration of AMD's tile engine for these GEMMs, which has `gemm_universal`'s tiles, waves
and instructions with three pipelines; persistent kernels included.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.kernels.judging import Rules
from ckh.ops.gemm_multi_d.kernel import GemmMultiDKernel, parse_multi_d_kernel
from ckh.ops.gemm_multi_d.problem import DTYPES
from ckh.ops.gemm_universal.kernels import spaces
from ckh.ops.gemm_universal.kernels.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.ops.gemm_universal.kernels.pool import bench_space, pools_of
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, PROBLEM_RULES, rule_key
from ckh.ops.gemm_universal.kernels.search_space import search_space_of, searched_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
    from ckh.ops.gemm_universal.kernels.spaces import GemmSpace

PIPELINES = ("compv3", "compv4", "mem")

rule = BOOK.rule


@rule
def _same_epilogue(problem: GemmMultiDProblem, function: str, num_d: int) -> Iterator[str]:
    if function != problem.function:
        yield f"a kernel of {function} cannot compute {problem.function}"
    if num_d != problem.num_d:
        yield f"a kernel of {num_d} further tensors cannot run a problem of {problem.num_d}"


@rule
def _on_a_gpu(arch: ArchSpec) -> Iterator[str]:
    if not arch.is_gpu:
        yield "the host device has no epilogues with further tensors"


@rule
def _floats(dtype: str) -> Iterator[str]:
    if dtype not in DTYPES:
        yield f"epilogues with further tensors are in floating point, not {dtype}"


MULTI_D_RULES: Rules[GemmMultiDKernel] = Rules(
    (*NAME_RULES, _on_a_gpu, _floats), COMPLETE_RULES, (*PROBLEM_RULES, _same_epilogue), attrgetter("missing")
)


def multi_d_rule_key(problem: GemmMultiDProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    return rule_key(problem), problem.function, problem.num_d


def multi_d_space(arch: ArchSpec) -> GemmSpace:
    """Return the space that an architecture's pool is filtered from."""
    return _narrowed(spaces.space_of(arch))


def _narrowed(space: GemmSpace) -> GemmSpace:
    return replace(space, pipelines=tuple(name for name in space.pipelines if name in PIPELINES))


POOLS = pools_of(GemmMultiDKernel, MULTI_D_RULES, parse_multi_d_kernel, multi_d_space)
BENCH_POOLS = pools_of(GemmMultiDKernel, MULTI_D_RULES, parse_multi_d_kernel, lambda arch: _narrowed(bench_space(arch)))
SEARCHED = searched_in(lambda dtype, arch: _narrowed(search_space_of(dtype, arch)), MULTI_D_RULES, GemmMultiDKernel)
