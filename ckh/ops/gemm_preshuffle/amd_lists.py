"""Lists of kernels with a shuffled B in AMD's file formats; a configuration states whether N is permuted."""

from __future__ import annotations

from ckh.ops.gemm_preshuffle.kernel import GemmPreshuffleKernel, parse_preshuffle_kernel
from ckh.ops.gemm_preshuffle.kernel_rules import PRESHUFFLE_RULES
from ckh.ops.gemm_preshuffle.pool import PreshuffleSpace
from ckh.ops.gemm_preshuffle.problem import OP_TYPE
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of

LISTS = lists_of(
    ListedKernels(
        GemmPreshuffleKernel,
        PRESHUFFLE_RULES,
        parse_preshuffle_kernel,
        OP_TYPE,
        PreshuffleSpace,
        flags=("permute_n",),
        default_scheduler=True,
    )
)
