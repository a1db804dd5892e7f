"""The analytic estimate of AITER's kernels of Composable Kernel."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from ckh.archs import load_arch
from ckh.learn.analytic.estimate import estimated_us
from ckh.ops.aiter_gemm.kernel import AiterKernel, parse_kernel
from ckh.ops.aiter_gemm.operation import OPERATION
from ckh.ops.aiter_gemm.problem import AiterGemm

ARCH = load_arch("gfx950")
_OF_CK = "a8w8_blockscale_bpreshuffle_1x128x128_256x"
_OF_CKTILE = "a8w8_blockscale_cktile_"
SLOWEST = "128x128x128_2x2x1_16x16x128_intrawave_0x1x0_4"  # compiled for four blocks of a compute unit
KERNELS = {
    _OF_CK + "128x128x128_16x16_16x16_8x32x1_8x32x1_1x32x1x8_8_2x1_intrawave_v3": (59.2, 178.0, 56.3, 722.7),
    _OF_CK + "16x64x256_16x16_16x16_16x16x1_16x16x1_1x16x1x16_4_1x1_intrawave_v1": (51.1, 473.1, 21.6, 1886.3),
    _OF_CK + "32x64x128_16x16_16x16_8x32x1_8x32x1_1x32x1x8_8_2x1_intrawave_v1": (35.2, 323.8, 28.4, 1252.3),
    _OF_CK + "32x64x256_16x16_16x16_16x16x1_16x16x1_1x32x1x8_8_2x1_intrawave_v1": (36.8, 321.1, 18.3, 1255.8),
    _OF_CK + "64x256x128_16x16_16x16_8x32x1_8x32x1_1x32x1x8_8_2x1_intrawave_v1": (70.7, 192.5, 52.5, 704.7),
    _OF_CK + "64x128x256_16x16_16x16_16x16x1_16x16x1_1x32x1x8_8_2x1_intrawave_v1": (82.1, 217.1, 36.7, 827.5),
    _OF_CKTILE + "32x128x128_1x4x1_16x16x128_intrawave_0x1x0_1": (58.5, 320.1, 59.0, 1211.4),
    _OF_CKTILE + "128x128x128_2x2x1_16x16x128_intrawave_0x1x0_2": (109.2, 268.3, 110.6, 960.3),
    _OF_CKTILE + "192x256x128_4x2x1_16x16x128_intrawave_0x1x0_1": (73.7, 174.6, 67.0, 542.7),
    _OF_CKTILE + "128x128x128_2x2x1_16x16x128_intrawave_0x1x0_3": (290.1, 1003.3, 262.2, 3338.3),
    _OF_CKTILE + SLOWEST: (529.6, 2441.7, 497.0, 7544.3),
}
SIZES = ((240, 6144, 7168), (1024, 7168, 16384), (64, 6144, 7168), (12288, 6144, 7168))


def estimated(sizes: tuple[int, int, int], *kernels: AiterKernel) -> list[float]:
    """Estimated microseconds on an MI355X."""
    problem = AiterGemm(*sizes, family="a8w8_blockscale_bpreshuffle")
    assert OPERATION.problems.tiled is not None
    return list(estimated_us(problem, OPERATION.problems.tiled(problem), kernels, ARCH))


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_the_first_kernel_is_among_the_fastest(number: int) -> None:
    """Of kernels of both libraries measured on an MI355X (Fyzyukk/aiter, MIT), the first takes at most 1.25 times."""
    times = [measured[number] for measured in KERNELS.values()]
    estimates = estimated(SIZES[number], *map(parse_kernel, KERNELS))
    assert times[estimates.index(min(estimates))] <= 1.25 * min(times)


def test_launch_bounds_spill() -> None:
    """The registers of a 128x128 tile suffice two blocks of four waves; three and four take longer, with few blocks."""
    two, three, four = (parse_kernel(_OF_CKTILE + SLOWEST[:-1] + bound) for bound in "234")
    of_two, of_three, of_four = estimated((240, 6144, 7168), two, three, four)
    assert of_two < of_three < of_four
    # By hand: 220 registers of a lane, of 512 / 4, the others stored and loaded in 56 iterations, 64 bytes a clock.
    assert of_four - of_two == pytest.approx(56 * (220 - 128) * 2 * 4 * 256 / 64 / 2400, rel=1e-6)


def test_scales_and_checked_rows_make_iterations_longer() -> None:
    """By hand: ten instructions for each sum of a lane; a third longer where M is no multiple of CK's tile."""
    tile = parse_kernel(_OF_CKTILE + "32x128x128_1x4x1_16x16x128_intrawave_0x1x0_1")
    unscaled = replace(tile, family="a8w8_bpreshuffle")
    scaled, plain = estimated((32, 128, 7168), tile, unscaled)
    assert scaled - plain == pytest.approx(56 * 10 * 32 * 128 / 64 / 2400, rel=1e-6)
    ck = next(parse_kernel(name) for name in KERNELS if "64x128x256" in name)
    (whole,), (checked,) = (estimated((rows, 128, 7168), ck) for rows in (64, 63))
    other = 3.0 + (4000 + 64 * 128 / 64) / 2400  # launch, start and end
    assert (checked - other) / (whole - other) == pytest.approx(1.34, rel=1e-6)


def test_loading_two_iterations_ahead_hides_half_of_the_checks() -> None:
    """By hand, as measured for tiles of 64 and 128 rows; not where a lane loads once, as for 64 rows of 64 bytes."""
    name = "a8w8_blockscale_bpreshuffle_1x128x128_256x64x128x128_16x16_16x16_8x32x1_8x32x1_1x32x1x8_8_2x1_intrawave_v3"
    kernel = parse_kernel(name)
    other = 3.0 + (4000 + 64 * 128 / 64) / 2400
    for tile_k, factor in ((128, 1.17), (64, 1.0)):
        (whole,), (checked,) = (estimated((rows, 128, 7168), replace(kernel, tile_k=tile_k)) for rows in (64, 63))
        assert (checked - other) / (whole - other) == pytest.approx(factor, rel=1e-6)


def test_parts_of_k_share_its_iterations() -> None:
    """A quarter of the iterations in each of four parts, whose blocks fit on the GPU: a quarter of the time."""
    kernel = next(parse_kernel(name) for name in KERNELS if "16x64x256" in name)
    whole, parts = estimated((16, 768, 7168), kernel, replace(kernel, split_k=2))
    other = 3.0 + (4000 + 16 * 64 / 64) / 2400
    assert (whole - other) / (parts - other) == pytest.approx(28 / ceil(28 / 4), rel=1e-6)
