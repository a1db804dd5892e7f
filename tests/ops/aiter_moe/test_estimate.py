"""The analytic estimate of mixtures of experts: the products, their tiles, and the sum of their times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ckh.ops.base import EstimatedProduct

FP8 = AiterMoe(64, 4096, 1024, 64, 4, quant="per_token", num_cus=256)
FIRST = "moe_ck2stages_gemm1_256x32x128x128_1x4_MulABScale_v1_Nswizzle0_Quant2_MulRoutedWeight0_silu_F8_F8_B16"
SECOND = "moe_ck2stages_gemm2_256x32x128x128_1x4_MulABScaleExpertWeight_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"


def test_experts_have_tiles_of_their_own() -> None:
    """256 rows of 64 experts, four each, are 64 products; the first one has both gates' columns."""
    first, second = both_products(FP8)
    assert [(part.sizes.m, part.sizes.n, part.sizes.k, part.sizes.batches) for part in (first, second)] == [
        (4, 2048, 4096, 64),
        (4, 4096, 1024, 64),
    ]
    assert first.bytes + second.bytes == FP8.bytes
    assert [part is None for part in products(replace(FP8, stage="stage2"))] == [True, False]


def both_products(problem: AiterMoe) -> list[EstimatedProduct]:
    """Both products of a mixture."""
    return [part for part in products(replace(problem, stage="both")) if part is not None]


# Of hardware counters (rocprofv3's TCP_TCC_ATOMIC_WITHOUT_RET_REQ_sum) of AITER's second products on an MI300 and an
# MI350: the kernel up to its waves, scaling of the experts, rows of all experts, columns, and requests of 64 bytes.
REQUESTS = [
    ("256x32x64x64_1x4_TypeCastExpertWeight_v1", "none", 8, 7424, 1856),
    ("256x64x128x64_1x4_TypeCastExpertWeight_v3", "none", 1024, 6144, 393216),
    ("128x16x128x128_1x2_MulABScaleExpertWeight_v1", "per_token", 4, 7296, 3648),
    ("256x32x64x128_1x4_MulABScaleExpertWeight_v1", "per_token", 4, 4736, 592),
    ("256x128x128x128_1x4_TypeCast_v3", "per_token", 2, 7936, 992),
    ("128x16x128x128_1x2_MulABScaleExpertWeightA8W8blkscale_v1", "per_1x128", 4, 7552, 944),
    ("256x64x128x128_1x4_MulABScaleExpertWeightA8W8blkscale_v3", "per_1x128", 256, 3200, 25600),
]


@pytest.mark.parametrize(("kernel", "quant", "rows", "columns", "requests"), REQUESTS)
def test_atomic_operations_have_the_requests_of_hardware_counters(
    kernel: str, quant: str, rows: int, columns: int, requests: int
) -> None:
    """Each request has 64 bytes, whatever part of them a kernel uses."""
    name = f"moe_ck2stages_gemm2_{kernel}_Nswizzle0_Quant0_MulRoutedWeight1"
    dtype = "bf16" if quant == "none" else "fp8"
    second = both_products(AiterMoe(64, columns, 1024, 64, 4, dtype=dtype, quant=quant))[1]
    (own,) = second.kernels([parse_choice(name)])
    assert own.added * rows * columns == 64 * requests


def test_fp4_kernels_of_one_wave_fill_their_requests() -> None:
    """Of the kernels of fp4's second product, those of 64 threads take half as long where requests bound the time."""
    problem = AiterMoe(32768, 7168, 256, 384, 8, dtype="pk_fp4", quant="per_1x32", num_cus=256)
    second = both_products(problem)[1]
    rest = "_v3_Nswizzle0_Quant3_MulRoutedWeight1_FP4X2_FP4X2_B16"
    names = [f"64x64x128x128_1x1_MulABScaleExpertWeightShuffled{rest}"]
    names += [f"256x64x128x128_1x4_MulABScaleExpertWeightShuffled{rest}"]
    choices = [parse_choice(f"moe_ck2stages_gemm2_{name}") for name in names]
    assert [own.added for own in second.kernels(choices)] == [2.0, 4.0]
    stage2 = replace(problem, stage="stage2")
    few, many = EstimateScores(wanted_for(problem, "gfx950")).scores([stage2], choices)[0]
    assert few > many  # measured: 2,875 and 5,840 us


def test_the_estimate_is_of_the_problems_compute_units() -> None:
    """A mixture that states 80 compute units takes longer than on all 304 of a gfx942, whichever GPU is asked about."""
    scores = EstimateScores(wanted_for(FP8, "gfx942"))
    choice = [parse_choice(joint(FIRST, SECOND))]
    of_80, of_304, of_any = (
        float(scores.scores([replace(FP8, tokens=4096, num_cus=cus)], choice)[0, 0]) for cus in (80, 304, 0)
    )
    assert of_80 < 2 * of_304
    assert of_any == of_304


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
    kernels = both_products(FP8)[0].kernels([parse_choice(name) for name in names])
    shapes = KernelShapes.of(kernels)
    assert shapes.tile_k.tolist() == [128, 64]
    whole, short = kernel_inputs(shapes, "fp8", arch)["estimate_trip_clocks"]
    other = kernel_inputs(replace(shapes, is_rcr=np.zeros(2, dtype=bool)), "fp8", arch)["estimate_trip_clocks"]
    assert whole == other[0]
    assert short - other[1] == pytest.approx((32 + 128) * 64 / arch.peaks.l2_bytes_per_clock)


def test_kinds_without_measurements_have_the_estimate() -> None:
    """FP4 with swiglu, which nobody measured, is answered by the estimate; no figure, as other FP4 has shaped it."""
    problem = AiterMoe(64, 4096, 1024, 64, 4, dtype="pk_fp4", quant="per_1x32", activation="swiglu", num_cus=256)
    model = stand_in(wanted_for(problem, "gfx950", 256), problem)
    assert model.is_estimate
    judged = [one for one in operation("aiter_moe").training.judged if not one.source and one.target == "gfx950"]
    (worth,) = (one for one in judged if one.holds_for(problem))
    assert worth.figures == (0.971, 0.912)
    assert model.not_measured is not None
    assert not worth.held_out
    assert model.not_measured.worth is None
    scores = EstimateScores(wanted_for(problem, "gfx950", 256))
    pool = moe_pool("gfx950", "stage2", "pk_fp4", "per_1x32", "swiglu")
    product = both_products(problem)[1]
    expected = estimated_us(product, product.sizes, product.kernels(pool), load_arch("gfx950"))
    assert scores.scores([replace(problem, stage="stage2")], pool)[0] == pytest.approx(-expected)
