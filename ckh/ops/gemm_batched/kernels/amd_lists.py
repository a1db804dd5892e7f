"""Lists of batched kernels in AMD's file formats: those of `gemm_universal`, with this operation's kernels."""

from __future__ import annotations

from ckh.ops.gemm_batched.kernel import GemmBatchedKernel, parse_batched_kernel
from ckh.ops.gemm_batched.kernels.problem_rules import BATCHED_RULES
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of

LISTS = lists_of(ListedKernels(GemmBatchedKernel, BATCHED_RULES, parse_batched_kernel))
