"""Names of kernels: ckh's are lossless, AMD's are parsed, and missing parameters are not guessed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.errors import DataError, UsageError
from ckh.kernels.pipelines import Scheduler
from ckh.kernels.table import SIZES
from ckh.ops import operation
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.grouped_conv.kernel import ConvKernel, amd_full_name, amd_short_name, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_STRIDE1_PAD0, SPECIALIZATIONS, STREAMK_STRATEGIES
from ckh.problems import DTYPE_BYTES, Direction
from tests.refusals import expect_refusal

GEMM = "gemm_universal_fp8_rcr_compv4_cshuffle_intrawave_False_True_False_True_256x128x64_2x2x1_32x32x16"
SHORT_GEMM = "gemm_universal_fp8_rcr_256x128x64_compv4_intrawave"
GEMM_KERNEL = GemmKernel(
    *("fp8", "rcr", 256, 128, 64, "compv4", Scheduler.INTRAWAVE, 2, 2, 1, 32, 32, 16, "cshuffle"),
    *(False, True, False, True, 0, 0, 0),
)
CONV = "grouped_conv_fwd_bf16_nhwgc_2d_basic_v1_cshuffle_intrawave_16x64x64_1x4x1_16x16x16"
SHORT_CONV = "grouped_conv_forward_bf16_2d_16x64x64_compv3_intrawave"
CONV_KERNEL = parse_kernel_name(CONV)
PARSE: dict[str, Any] = {name: operation(name).kernels.parse for name in ("gemm_universal", "grouped_conv")}

_PATIENT = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # many fields to draw
_SHARED: dict[str, Any] = {
    "dtype": st.sampled_from(sorted(DTYPE_BYTES)),
    "pipeline": st.sampled_from(("basic_v1", "mem", "compv4", "comp_async", "preshufflev2", "wavelet", "comp_tdm_v2")),
    "scheduler": st.sampled_from(Scheduler),
    "epilogue": st.sampled_from(("cshuffle", "default", "tdm")),
    **dict.fromkeys(SIZES, st.integers(1, 999)),
    **{f"pad_{axis}": st.booleans() for axis in "mnk"},
}
COMPLETE = st.one_of(
    st.builds(
        GemmKernel,
        layout=st.sampled_from(GEMM_LAYOUTS),
        persistent=st.booleans(),
        suffix=st.sampled_from(("", "_more", "_v2_x")),
        **{f"vector_{operand}": st.sampled_from((0, 1, 4, 16)) for operand in "abc"},
        **_SHARED,
    ),
    st.builds(
        ConvKernel,
        variant=st.sampled_from(Direction),
        ndim_spatial=st.sampled_from((1, 2, 3)),
        layout=st.sampled_from(("nhwgc", "ndhwgc", "nwgc", "ngchw")),
        double_smem_buffer=st.booleans(),
        split_image=st.booleans(),
        num_groups_to_merge=st.sampled_from((1, 2, 32)),
        num_wave_groups=st.sampled_from((1, 2)),
        two_stage=st.booleans(),
        explicit_gemm=st.booleans(),
        specialization=st.sampled_from(SPECIALIZATIONS),
        block_per_cu=st.sampled_from((1, 2, 4)),
        streamk=st.sampled_from((None, *STREAMK_STRATEGIES)),
        streamk_persistent=st.booleans(),
        split_k=st.integers(1, 128),
        **{f"vector_{operand}": st.sampled_from((1, 2, 4, 8, 16)) for operand in "abc"},
        **_SHARED,
    ),
)
# Fields that short names state.
HELD = {
    GemmKernel: {"dtype", "layout", "tile_m", "tile_n", "tile_k", "pipeline", "scheduler"},
    ConvKernel: {
        *("variant", "dtype", "ndim_spatial", "tile_m", "tile_n", "tile_k", "pipeline", "scheduler"),
        *("double_smem_buffer", "split_image", "num_groups_to_merge", "two_stage"),
    },
}


@_PATIENT
@given(COMPLETE)
def test_names_restore_kernels(kernel: Any) -> None:
    """Complete names restore all fields, whether or not the combination is valid; short ones leave the others open."""
    op = operation(type(kernel).op_type).kernels
    assert op.parse(op.name(kernel)) == kernel
    parsed: Any = op.parse(op.other_names(kernel)[-1])
    for field in fields(kernel):
        expected = getattr(kernel, field.name) if field.name in HELD[type(kernel)] else field.default
        assert getattr(parsed, field.name) == expected, field.name
    assert not parsed.is_complete
    assert {"wave_m", "epilogue", "pad_k", "vector_c"} <= set(parsed.missing)


def test_amds_full_names() -> None:
    """Every token is parsed to a field; 1 is true, although AMD's parser treats it as false."""
    parse = PARSE["gemm_universal"]
    for text in (GEMM, GEMM.replace("gemm_universal_", "gemm_"), GEMM.replace("False_True_False_True", "0_1_0_1")):
        assert parse(text) == GEMM_KERNEL
    assert operation("gemm_universal").kernels.name(GEMM_KERNEL) == GEMM
    assert kernel_name(CONV_KERNEL) == amd_full_name(CONV_KERNEL) == CONV


def test_every_option_is_in_the_name_in_order() -> None:
    """All optional tokens together are in the grammar's order."""
    kernel = replace(
        CONV_KERNEL,
        variant=Direction.BWD_WEIGHT,
        vector_a=1,
        block_per_cu=2,
        num_wave_groups=2,
        num_groups_to_merge=4,
        double_smem_buffer=True,
        two_stage=True,
        specialization=FILTER1X1_STRIDE1_PAD0,
        explicit_gemm=True,
        streamk="tree",
        streamk_persistent=True,
        split_image=True,
        pad_n=False,
        split_k=4,
    )
    tail = "_wg2_gm4_dsb_2stage_filter1x1_stride1_pad0_explicit_gemm_streamk_tree_persistent_large_tensor_pad101"
    head = CONV.replace("fwd", "bwd_weight") + "_vec1_8_8"
    assert kernel_name(kernel) == f"{head}_bpc2{tail}_splitk4"
    assert amd_full_name(kernel) == f"{head}{tail}"


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
    kernel = PARSE["gemm_universal"](GEMM + suffix)
    assert (kernel.vectors, kernel.suffix) == (vectors, rest)


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        ("", (1, False, False, False)),
        ("_gm2", (2, False, False, False)),
        ("_dsb", (1, True, False, False)),
        ("_si", (1, False, True, False)),
        ("_2stage", (1, False, False, True)),
        ("_dsb_si", (1, True, True, False)),
        ("_gm2_dsb_si_2stage", (2, True, True, True)),
    ],
)
def test_short_names_of_amds_csv(suffix: str, expected: tuple[int, bool, bool, bool]) -> None:
    """Suffixes are distinguished, including `_gm2` and `_2stage`, which AMD's own parser loses."""
    kernel = parse_kernel_name(SHORT_CONV + suffix)
    assert (kernel.pipeline, kernel.scheduler, kernel.tile) == ("compv3", Scheduler.INTRAWAVE, (16, 64, 64))
    flags = (kernel.num_groups_to_merge, kernel.double_smem_buffer, kernel.split_image, kernel.two_stage)
    assert flags == expected
    assert amd_short_name(kernel) == SHORT_CONV + suffix


def test_short_name_without_a_scheduler_is_intrawave() -> None:
    """As in AMD's parser, a missing scheduler is intrawave; interwave is parsed as interwave."""
    assert parse_kernel_name("grouped_conv_bwd_data_fp16_3d_64x64x64_basic_v1_dsb").scheduler is Scheduler.INTRAWAVE
    kernel = parse_kernel_name("grouped_conv_bwd_data_fp16_3d_64x64x64_basic_v1_interwave_dsb")
    assert (kernel.scheduler, kernel.double_smem_buffer) == (Scheduler.INTERWAVE, True)


@pytest.mark.parametrize(
    ("op", "text", "part"),
    [
        ("gemm_universal", "", "operation"),
        ("gemm_universal", "grouped_conv_fwd_bf16_nhwgc_2d", "operation"),
        ("gemm_universal", "gemm_universal_fp9_rcr", "dtype"),
        ("gemm_universal", "gemm_universal_fp8_rrc", "layout"),
        ("gemm_universal", "gemm_universal_fp8_rcr", "pipeline"),
        ("gemm_universal", GEMM.replace("compv4", "fast"), "pipeline"),
        ("gemm_universal", GEMM.replace("cshuffle", "shuffle"), "epilogue"),
        ("gemm_universal", GEMM.replace("intrawave", "outerwave"), "scheduler"),
        ("gemm_universal", GEMM.replace("False_True_False_True", "False_True_no_True"), "padding of K"),
        ("gemm_universal", GEMM.replace("False_True_False_True", "False_True_False"), "persistence"),
        ("gemm_universal", GEMM.replace("256x128x64", "256x128"), "tile"),
        ("gemm_universal", GEMM.replace("2x2x1", "2x2"), "waves"),
        ("gemm_universal", GEMM.removesuffix("_32x32x16"), "warp tile"),
        ("gemm_universal", GEMM + "_vec8_4", "vector widths"),
        ("gemm_universal", GEMM + "_vec8_4_2x", "vector widths"),
        ("gemm_universal", GEMM + "_more_", "end '_'"),
        ("gemm_universal", SHORT_GEMM.replace("compv4", "fast"), "pipeline"),
        ("gemm_universal", SHORT_GEMM + "_dsb", "end '_dsb'"),
        ("grouped_conv", "gemm_universal_fp8_rcr_compv4", "operation"),
        ("grouped_conv", "grouped_conv_sideways_bf16_2d", "direction"),
        ("grouped_conv", "grouped_conv_fwd_bf16_nhwgc_9d_mem", "number of dimensions"),
        ("grouped_conv", SHORT_CONV.replace("16x64x64", "16x64"), "tile"),
        ("grouped_conv", CONV + "_gm2_vec1_1_1", "end '_vec1_1_1'"),
        ("grouped_conv", CONV + "_pad111x", "end 'x'"),
        ("grouped_conv", CONV.replace("basic_v1", "compv3_fast"), "epilogue"),
        ("grouped_conv", SHORT_CONV + "_si_dsb", "end '_dsb'"),
        ("grouped_conv", SHORT_CONV.replace("compv3", "compv3_fast"), "end '_fast_intrawave'"),
    ],
)
def test_an_invalid_name_reports_the_wrong_part(op: str, text: str, part: str) -> None:
    """The message names the first invalid part."""
    with expect_refusal(DataError, "bad-kernel", text) as caught:
        PARSE[op](text)
    assert f"its {part} is" in caught.value.message


def test_an_unnameable_kernel_is_refused() -> None:
    """An incomplete kernel, or a kernel with a value without token, has no complete name."""
    for short in (SHORT_GEMM, SHORT_CONV):
        op = operation("gemm_universal" if short is SHORT_GEMM else "grouped_conv").kernels
        kernel: Any = op.parse(short)
        with expect_refusal(UsageError, "incomplete-kernel", "wave_m"):
            op.name(kernel)
        with expect_refusal(UsageError, "incomplete-kernel"):
            _ = kernel.wave
    for kernel, changes in (
        (GEMM_KERNEL, {"pipeline": "compv4_fast"}),
        (GEMM_KERNEL, {"epilogue": "shuffle2"}),
        (CONV_KERNEL, {"specialization": "filter5x5"}),
        (CONV_KERNEL, {"streamk": "atomic"}),
    ):
        with expect_refusal(UsageError, "unknown-name", *changes.values()):
            operation(type(kernel).op_type).kernels.name(replace(kernel, **changes))
