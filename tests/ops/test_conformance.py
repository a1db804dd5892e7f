"""Every operation passes the checks of `ckh.ops.conformance`, on an architecture of each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ckh.errors import DataError
from ckh.ops import operation, operation_names
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.aiter_moe.problem import AiterMoe
from ckh.ops.conformance import CHECKS, Example
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.refusals import expect_refusal

CONV = ConvProblem(Direction.BWD_DATA, n=2, c=16, k=32, g=4, hi=9, wi=7, y=3, x=1, stride_h=2, pad_h=1)
PROBLEMS: dict[str, tuple[Any, ...]] = {
    "grouped_conv": (
        CONV,
        replace(CONV, n=9),
        replace(CONV, variant=Direction.FORWARD, g=1, dilation_w=2, wi=40, x=3),
        replace(CONV, variant=Direction.BWD_WEIGHT, ndim=3, layout="ndhwgc", di=4, z=3, stride_d=2),
        ConvProblem(Direction.FORWARD, n=1, c=64, k=128, g=64, hi=14, wi=14, y=3, x=3),
        ConvProblem(Direction.FORWARD, n=32, c=64, k=256, g=1, hi=56, wi=56, y=1, x=1),
    ),
    "gemm_universal": (
        GemmProblem(16, 48, 33, layout="crr"),
        GemmProblem(16, 48, 96, layout="crr", split_k=2),
        GemmProblem(4096, 512, 7168),
        GemmProblem(2048, 512, 7168),
        GemmProblem(100, 1000, 640, layout="ccr", split_k=3),
    ),
    "aiter_gemm": (
        AiterGemm(16, 7168, 2048, "a8w8_bpreshuffle", num_cus=304),
        AiterGemm(512, 7168, 2048, "a8w8_bpreshuffle", num_cus=304),
        AiterGemm(16, 7168, 2048, "a8w8_blockscale", num_cus=304),
    ),
    "aiter_moe": (
        AiterMoe(64, 7168, 256, 256, 8, "stage2", num_cus=304),
        AiterMoe(64, 7168, 256, 256, 8, "stage1", num_cus=304),
    ),
    "gemm_batched": (
        GemmBatchedProblem(16, 48, 33, layout="crr", split_k=2, batch=3, lda=24, batch_stride_c=800),
        GemmBatchedProblem(16, 48, 64, layout="crr", batch=3),
        GemmBatchedProblem(16, 48, 64, layout="crr", batch=300),
        GemmBatchedProblem(64, 128, 64, batch=7, ldb=72),
    ),
    "gemm_grouped": (
        GemmGroupedProblem(ms="9+16x3+0", n=48, k=33, layout="rrr", split_k=2),
        GemmGroupedProblem(ms="64x8", n=48, k=64),
        GemmGroupedProblem(ms="128x8", n=48, k=64),
        GemmGroupedProblem(ms="512+64x80", n=4096, k=512),
    ),
    "gemm_multi_d": (
        GemmMultiDProblem(16, 48, 33, layout="crr", function="add_gelu", ds="vr"),
        GemmMultiDProblem(16, 48, 64, layout="crr", function="add_gelu", ds="vr"),
        GemmMultiDProblem(16, 48, 64, layout="crr", function="add_gelu", ds="rr"),
        GemmMultiDProblem(16, 48, 64, function="mul", ds="r"),
    ),
    "gemm_preshuffle": (
        GemmPreshuffleProblem(16, 64, 64, "fp16", b_order="16x16p2x2"),
        GemmPreshuffleProblem(16, 64, 64, "fp16"),
        GemmPreshuffleProblem(512, 4096, 4096, "fp16"),
        GemmPreshuffleProblem(1024, 4096, 4096, "fp16"),
    ),
    "gemm_streamk": (
        GemmStreamKProblem(16, 48, 96, layout="crr"),
        GemmStreamKProblem(16, 48, 128, layout="crr"),
        GemmStreamKProblem(512, 4096, 8192),
        GemmStreamKProblem(1024, 4096, 16384),
    ),
}
# Where kernels are measured on the host, all checks are done there too.
ON_HOST = ("grouped_conv", "gemm_universal", "gemm_batched", "gemm_grouped")
EXAMPLES = {
    **{f"{name} gfx942": Example(operation(name), problems, "gfx942") for name, problems in PROBLEMS.items()},
    **{f"{name} host": Example(operation(name), PROBLEMS[name], "host") for name in ON_HOST},
}


def test_every_operation_has_problems_here() -> None:
    """Every operation is covered by these tests."""
    assert set(PROBLEMS) == set(operation_names())


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_operations_conform(name: str, check: str) -> None:
    """No check finds a fault."""
    assert list(CHECKS[check](EXAMPLES[name])) == []


@pytest.mark.parametrize(("name", "amds"), [("gemm_batched", "batched_gemm"), ("gemm_grouped", "grouped_gemm")])
def test_names_are_of_one_operation(name: str, amds: str) -> None:
    """Those of AMD's tile engine are parsed too; those of another operation are refused."""
    op, other = operation(name), operation("gemm_universal")
    rest = "_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
    assert op.kernels.parse(amds + rest) == op.kernels.parse(name + rest) != other.kernels.parse(other.name + rest)
    for one, wrong in ((other, name), (op, other.name)):
        with expect_refusal(DataError, "bad-kernel"):
            one.kernels.parse(wrong + rest)
