"""The analytic estimate of mixtures of experts: the products, their tiles, and the sum of their times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.learn.analytic.estimate import KernelShapes, estimated_us, kernel_inputs
from ckh.learn.analytic.estimator import EstimateScores
from ckh.learn.analytic.transfer import stand_in
from ckh.learn.models.artifact import wanted_for
from ckh.ops import operation
from ckh.ops.aiter_moe.kernel import joint, moe_pool, parse_choice, products
from ckh.ops.aiter_moe.problem import AiterMoe

FP8 = AiterMoe(64, 4096, 1024, 64, 4, quant="per_token", num_cus=256)
FIRST = "moe_ck2stages_gemm1_256x32x128x128_1x4_MulABScale_v1_Nswizzle0_Quant2_MulRoutedWeight0_silu_F8_F8_B16"
SECOND = "moe_ck2stages_gemm2_256x32x128x128_1x4_MulABScaleExpertWeight_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"


def test_experts_have_tiles_of_their_own() -> None:
    """256 rows of 64 experts, four each, fill 64 tiles of any height; the first product has both gates' columns."""
    first, second = products(FP8)
    assert [(part.sizes.m, part.sizes.n, part.sizes.k) for part in (first, second)] == [
        (256, 2048, 4096),
        (256, 4096, 1024),
    ]
    assert first.sizes.tiled_m(np.array([16, 32, 64])).tolist() == [64 * 16, 64 * 32, 64 * 64]
    assert first.bytes + second.bytes == FP8.bytes


def test_the_time_of_both_products_is_the_sum_of_each() -> None:
    """A pair of kernels has the estimated time of its kernels on the stages."""
    wanted = wanted_for(FP8, "gfx950", 256)
    both = EstimateScores(wanted).scores([FP8], [parse_choice(joint(FIRST, SECOND))])[0, 0]
    single = [
        EstimateScores(wanted).scores([replace(FP8, stage=stage)], [parse_choice(name)])[0, 0]
        for stage, name in (("stage1", FIRST), ("stage2", SECOND))
    ]
    assert both == pytest.approx(sum(single))
    assert both < min(single) < 0


def test_short_rows_load_whole_lines_of_the_cache() -> None:
    """Rows of 64 bytes keep the L2 cache as busy as rows of 128, with half as many multiplications."""
    arch = load_arch("gfx942")
    assert arch.peaks is not None
    names = [FIRST, FIRST.replace("x128x128_", "x128x64_")]
    kernels = products(replace(FP8, stage="stage1"))[0].kernels([parse_choice(name) for name in names])
    shapes = KernelShapes.of(kernels)
    assert shapes.tile_k.tolist() == [128, 64]
    whole, short = kernel_inputs(shapes, "fp8", arch)["estimate_trip_clocks"]
    other = kernel_inputs(replace(shapes, is_rcr=np.zeros(2, dtype=bool)), "fp8", arch)["estimate_trip_clocks"]
    assert whole == other[0]
    assert short - other[1] == pytest.approx((32 + 128) * 64 / arch.peaks.l2_bytes_per_clock)


def test_kinds_without_measurements_have_the_estimate() -> None:
    """FP4 with swiglu, which nobody measured, is answered by the estimate, with what it was worth on other FP4."""
    problem = AiterMoe(64, 4096, 1024, 64, 4, dtype="pk_fp4", quant="per_1x32", activation="swiglu", num_cus=256)
    model = stand_in(wanted_for(problem, "gfx950", 256), problem)
    assert model.is_estimate
    judged = [one for one in operation("aiter_moe").training.judged if not one.source and one.target == "gfx950"]
    (worth,) = (one for one in judged if one.holds_for(problem))
    assert worth.figures == (0.877, 0.601)
    assert model.not_measured is not None
    assert model.not_measured.worth == str(worth)
    scores = EstimateScores(wanted_for(problem, "gfx950", 256))
    pool = moe_pool("gfx950", "stage2", "pk_fp4", "per_1x32", "swiglu")
    product = products(replace(problem, stage="stage2"))[0]
    expected = estimated_us(product, product.sizes, product.kernels(pool), load_arch("gfx950"))
    assert scores.scores([replace(problem, stage="stage2")], pool)[0] == pytest.approx(-expected)
