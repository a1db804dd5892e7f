"""Pools: the candidate kernels of batched matrix products.

Source: the configuration of AMD's tile engine for batched GEMMs, which has `gemm_universal`'s tiles, waves and
instructions with three pipelines and without persistent kernels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.ops.gemm_batched.kernel import GemmBatchedKernel, parse_batched_kernel
from ckh.ops.gemm_batched.kernels.problem_rules import BATCHED_RULES
from ckh.ops.gemm_universal.kernels import spaces
from ckh.ops.gemm_universal.kernels.pool import bench_space, pools_of
from ckh.ops.gemm_universal.kernels.search_space import search_space_of, searched_in

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.kernels.spaces import GemmSpace

PIPELINES = ("compv3", "compv4", "mem")


def batched_space(arch: ArchSpec) -> GemmSpace:
    """Return the space that an architecture's pool is filtered from."""
    return _batched(spaces.space_of(arch))


def _batched(space: GemmSpace) -> GemmSpace:
    pipelines = tuple(name for name in space.pipelines if name in PIPELINES)
    return replace(space, pipelines=pipelines, persistent=(False,))


POOLS = pools_of(GemmBatchedKernel, BATCHED_RULES, parse_batched_kernel, batched_space)
BENCH_POOLS = pools_of(GemmBatchedKernel, BATCHED_RULES, parse_batched_kernel, lambda arch: _batched(bench_space(arch)))
SEARCHED = searched_in(lambda dtype, arch: _batched(search_space_of(dtype, arch)), BATCHED_RULES, GemmBatchedKernel)
