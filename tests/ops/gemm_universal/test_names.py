"""Names of GEMM kernels: ckh's are lossless, AMD's are parsed, and missing parameters are not guessed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.errors import DataError, UsageError
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.kernel import GemmKernel, kernel_name, parse_kernel_name, short_name
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.problems import DTYPE_BYTES
from tests.refusals import expect_refusal

FULL = "gemm_universal_fp8_rcr_compv4_cshuffle_intrawave_False_True_False_True_256x128x64_2x2x1_32x32x16"
SHORT = "gemm_universal_fp8_rcr_256x128x64_compv4_intrawave"
KERNEL = GemmKernel(
    dtype="fp8",
    layout="rcr",
    tile_m=256,
    tile_n=128,
    tile_k=64,
    pipeline="compv4",
    scheduler=Scheduler.INTRAWAVE,
    wave_m=2,
    wave_n=2,
    wave_k=1,
    warp_tile_m=32,
    warp_tile_n=32,
    warp_tile_k=16,
    epilogue="cshuffle",
    pad_m=False,
    pad_n=True,
    pad_k=False,
    persistent=True,
    vector_a=0,
    vector_b=0,
    vector_c=0,
)
_PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])  # 22 fields to draw, which is slow on a busy machine
_SIZES = st.integers(1, 999)
_COMPLETE = st.builds(
    GemmKernel,
    dtype=st.sampled_from(sorted(DTYPE_BYTES)),
    layout=st.sampled_from(GEMM_LAYOUTS),
    pipeline=st.sampled_from(("basic_v1", "mem", "compv4", "comp_async", "preshufflev2", "wavelet", "comp_tdm_v2")),
    scheduler=st.sampled_from(Scheduler),
    **{f"{what}_{axis}": _SIZES for what in ("tile", "wave", "warp_tile") for axis in "mnk"},
    **{f"vector_{operand}": st.sampled_from((0, 1, 4, 16)) for operand in "abc"},
    epilogue=st.sampled_from(("cshuffle", "default", "tdm")),
    **{f"pad_{axis}": st.booleans() for axis in "mnk"},
    persistent=st.booleans(),
    suffix=st.sampled_from(("", "_more", "_v2_x")),
)


def test_amds_full_name_is_parsed() -> None:
    """Every token of AMD's name is parsed to a field, and the name is valid in ckh."""
    assert parse_kernel_name(FULL) == KERNEL
    assert kernel_name(KERNEL) == FULL
    assert parse_kernel_name(FULL.replace("gemm_universal_", "gemm_")) == KERNEL


@_PATIENT
@given(_COMPLETE)
def test_round_trip_of_any_complete_kernel(kernel: GemmKernel) -> None:
    """Names restore all fields, whether or not the combination is valid."""
    assert parse_kernel_name(kernel_name(kernel)) == kernel


@_PATIENT
@given(_COMPLETE)
def test_a_short_name_leaves_other_fields_open(kernel: GemmKernel) -> None:
    """A field of a kernel parsed from a short name equals the kernel's or is not set."""
    parsed = parse_kernel_name(short_name(kernel))
    held = {"dtype", "layout", "tile_m", "tile_n", "tile_k", "pipeline", "scheduler"}
    for field in fields(GemmKernel):
        expected = getattr(kernel, field.name) if field.name in held else field.default
        assert getattr(parsed, field.name) == expected, field.name
    assert not parsed.is_complete
    assert {"wave_m", "epilogue", "pad_k", "persistent", "vector_c"} <= set(parsed.missing)


@pytest.mark.parametrize(
    ("suffix", "vectors", "rest"),
    [
        ("", (0, 0, 0), ""),
        ("_vecnative", (0, 0, 0), ""),
        ("_vec8_4_2", (8, 4, 2), ""),
        ("_vec8_4_2_more_to_come", (8, 4, 2), "_more_to_come"),
        ("_more", (0, 0, 0), "_more"),
    ],
)
def test_vector_widths_and_following_fields(suffix: str, vectors: tuple[int, int, int], rest: str) -> None:
    """No widths, or `native`, mean native ones; suffixes that AMD's parser skips are kept, as part of the identity."""
    kernel = parse_kernel_name(FULL + suffix)
    assert (kernel.vectors, kernel.suffix) == (vectors, rest)


def test_booleans_written_as_numbers() -> None:
    """1 is true, although AMD's parser treats it as false."""
    kernel = parse_kernel_name(FULL.replace("False_True_False_True", "0_1_0_1"))
    assert kernel == KERNEL


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "operation"),
        ("grouped_conv_fwd_bf16_nhwgc_2d", "operation"),
        ("gemm_universal_fp9_rcr", "dtype"),
        ("gemm_universal_fp8_rrc", "layout"),
        ("gemm_universal_fp8_rcr", "pipeline"),
        (FULL.replace("compv4", "fast"), "pipeline"),
        (FULL.replace("cshuffle", "shuffle"), "epilogue"),
        (FULL.replace("intrawave", "outerwave"), "scheduler"),
        (FULL.replace("False_True_False_True", "False_True_no_True"), "padding of K"),
        (FULL.replace("False_True_False_True", "False_True_False"), "persistence"),
        (FULL.replace("256x128x64", "256x128"), "tile"),
        (FULL.replace("2x2x1", "2x2"), "waves"),
        (FULL.removesuffix("_32x32x16"), "warp tile"),
        (FULL + "_vec8_4", "vector widths"),
        (FULL + "_vec8_4_2x", "vector widths"),
        (FULL + "_more_", "end '_'"),
        (SHORT.replace("compv4", "fast"), "pipeline"),
        (SHORT + "_dsb", "end '_dsb'"),
    ],
)
def test_an_invalid_name_reports_the_wrong_part(text: str, part: str) -> None:
    """The message names the first invalid part."""
    with pytest.raises(DataError) as caught:
        parse_kernel_name(text)
    assert f"its {part} is" in caught.value.message
    assert repr(text) in caught.value.message


def test_an_unnameable_kernel_is_refused() -> None:
    """An incomplete kernel, or a kernel with a value without token, has no complete name."""
    with pytest.raises(UsageError, match="lacks wave_m"):
        kernel_name(parse_kernel_name(SHORT))
    with pytest.raises(UsageError, match="compv4_fast"):
        kernel_name(replace(KERNEL, pipeline="compv4_fast"))
    with pytest.raises(UsageError, match="shuffle2"):
        kernel_name(replace(KERNEL, epilogue="shuffle2"))
    with expect_refusal(UsageError, "incomplete-kernel"):
        _ = parse_kernel_name(SHORT).wave
