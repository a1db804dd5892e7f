"""Kernels of batched matrix products: names, pools, rules, features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.ops import operation
from ckh.ops.base import Encoding
from ckh.ops.gemm_batched.operation import (
    BATCHED_RULES,
    parse_batched_kernel,
)
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.kernel import kernel_name
from ckh.ops.gemm_universal.problem import GemmProblem

ARCH = load_arch("gfx942")
OP, GEMM = operation("gemm_batched"), operation("gemm_universal")
NAME = "gemm_batched_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
PROBLEM = GemmBatchedProblem(256, 128, 64, "fp16", "rcr", batch=3)


def reasons(problem: GemmBatchedProblem, kernel: str = NAME) -> list[str]:
    """Why a kernel is refused."""
    return BATCHED_RULES.check(parse_batched_kernel(kernel), ARCH, problem)


def test_a_persistent_kernel_is_refused() -> None:
    """CK Tile's batched kernel has one block per tile."""
    persistent = kernel_name(replace(parse_batched_kernel(NAME), persistent=True))
    assert reasons(PROBLEM) == []
    assert len(reasons(PROBLEM, persistent)) == 1


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"lda": 68}, "lda"),
        ({"ldb": 68}, "ldb"),
        ({"ldc": 132}, "ldc"),
        ({"batch_stride_a": 20_004}, "batch_stride_a"),
        ({"batch_stride_c": 40_002}, "batch_stride_c"),
        ({"batch": 65_536}, "65535"),
        ({"batch": 3, "batch_stride_b": 2**30}, "2147483648"),
        ({"m": 250, "layout": "crr"}, "layout"),
    ],
)
def test_rules_of_batch_and_strides(changes: dict[str, object], part: str) -> None:
    """Lines begin at whole vectors, matrices within 31-bit offsets, and products are rows of a grid."""
    result = reasons(PROBLEM.replaced(**changes))
    assert [reason for reason in result if part in reason]


def test_aligned_strides_are_no_obstacle() -> None:
    """A kernel applies to gaps of whole vectors, and as far as gemm_universal's to one product."""
    strides = {"lda": 72, "ldb": 64, "ldc": 136, "batch_stride_a": 20_000, "batch_stride_c": 40_000}
    assert reasons(PROBLEM.replaced(**strides)) == []
    assert reasons(replace(PROBLEM, batch=65_535)) == []
    assert reasons(replace(PROBLEM, batch_stride_b=2**30 - 8)) == []
    kernel, plain = parse_batched_kernel(NAME), GEMM.kernels.parse(NAME.replace("gemm_batched", "gemm_universal"))
    for m, n, k, split_k in ((256, 100, 64, 1), (256, 128, 72, 1), (100, 128, 128, 2), (2**16, 2**15, 64, 1)):
        problem = GemmProblem(m, n, k, "fp16", "rcr", split_k)
        batch = GemmBatchedProblem(m, n, k, "fp16", "rcr", split_k, batch=2)
        refused = GEMM.kernels.candidates(problem, ARCH, Path("none"))
        assert (plain in refused.kernels) == (not BATCHED_RULES.check(kernel, ARCH, batch))


def test_features_of_a_batch() -> None:
    """Tiles are those of all products; without batch and strides, gemm_universal's features are as there."""
    kernel = parse_batched_kernel(NAME)

    def values(problem: GemmBatchedProblem | GemmProblem) -> dict[str, float]:
        op = OP if isinstance(problem, GemmBatchedProblem) else GEMM
        columns = op.problems.features([problem]) | op.kernels.features([kernel], Encoding(is_gpu=True))
        engine = op.training.engine
        return dict(zip(engine.names, engine.matrix(columns, ARCH.hardware.to_dict())[0].tolist(), strict=True))

    item, plain = values(replace(PROBLEM, batch=1)), values(GemmProblem(256, 128, 64, "fp16"))
    assert {name: item[name] for name in GEMM_UNIVERSAL.names} == plain
    many = values(GemmBatchedProblem(300, 128, 64, "fp16", batch=200, split_k=2, lda=96, batch_stride_b=2**14))
    tiles = 3 * 1 * 200
    cus = ARCH.hardware.num_cus
    assert many["total_output_tiles"] == tiles
    assert many["cu_utilization"] == pytest.approx(tiles / cus)
    assert many["last_wave_fill"] == pytest.approx(tiles / (np.ceil(tiles / cus) * cus))
    assert many["waves_of_workgroups"] == np.ceil(tiles * 2 / cus)
    assert (many["batch"], many["tiles_per_product"], many["strided"]) == (200, 3, 1 + 2**4)
    assert (many["powers_of_two_lda"], many["powers_of_two_ldb"]) == (5, 0)
