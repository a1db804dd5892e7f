"""Names: ckh's are lossless, AMD's are parsed, and missing parameters are not guessed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckh.archs import load_arch
from ckh.errors import DataError, UsageError
from ckh.kernels.pipelines import Scheduler
from ckh.ops.grouped_conv.kernel import ConvKernel, amd_full_name, amd_short_name, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_STRIDE1_PAD0, SPECIALIZATIONS, STREAMK_STRATEGIES
from ckh.problems import DTYPE_BYTES, Direction

PLAIN = "grouped_conv_fwd_bf16_nhwgc_2d_basic_v1_cshuffle_intrawave_16x64x64_1x4x1_16x16x16"
SHORT = "grouped_conv_forward_bf16_2d_16x64x64_compv3_intrawave"


@pytest.fixture(scope="module")
def plain() -> ConvKernel:
    """The first forward kernel of gfx950."""
    return conv_pool(Direction.FORWARD, load_arch("gfx950"))[0]


def test_a_plain_kernel_has_amds_name(plain: ConvKernel) -> None:
    """A kernel without options has no optional token."""
    assert kernel_name(plain) == amd_full_name(plain) == PLAIN


def test_every_option_is_in_the_name_in_order(plain: ConvKernel) -> None:
    """All optional tokens together are in the grammar's order."""
    kernel = replace(
        plain,
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
    head = PLAIN.replace("fwd", "bwd_weight") + "_vec1_8_8"
    assert kernel_name(kernel) == f"{head}_bpc2{tail}_splitk4"
    assert amd_full_name(kernel) == f"{head}{tail}"


_SIZES = st.integers(1, 999)
_COMPLETE = st.builds(
    ConvKernel,
    variant=st.sampled_from(Direction),
    dtype=st.sampled_from(sorted(DTYPE_BYTES)),
    ndim_spatial=st.sampled_from((1, 2, 3)),
    pipeline=st.sampled_from(("basic_v1", "mem", "compv4", "comp_async", "basic_async_v1", "wavelet", "comp_tdm_v2")),
    scheduler=st.sampled_from(Scheduler),
    **{f"{what}_{axis}": _SIZES for what in ("tile", "wave", "warp_tile") for axis in "mnk"},
    **{f"vector_{operand}": st.sampled_from((1, 2, 4, 8, 16)) for operand in "abc"},
    layout=st.sampled_from(("nhwgc", "ndhwgc", "nwgc", "ngchw")),
    epilogue=st.sampled_from(("cshuffle", "default", "tdm")),
    double_smem_buffer=st.booleans(),
    split_image=st.booleans(),
    num_groups_to_merge=st.sampled_from((1, 2, 32)),
    num_wave_groups=st.sampled_from((1, 2)),
    two_stage=st.booleans(),
    explicit_gemm=st.booleans(),
    specialization=st.sampled_from(SPECIALIZATIONS),
    **{f"pad_{axis}": st.booleans() for axis in "mnk"},
    block_per_cu=st.sampled_from((1, 2, 4)),
    streamk=st.sampled_from((None, *STREAMK_STRATEGIES)),
    streamk_persistent=st.booleans(),
    split_k=st.integers(1, 128),
)


@given(_COMPLETE)
def test_round_trip_of_any_complete_kernel(kernel: ConvKernel) -> None:
    """Names restore all fields, whether or not the combination is valid."""
    assert parse_kernel_name(kernel_name(kernel)) == kernel


@given(_COMPLETE)
def test_a_short_name_leaves_other_fields_open(kernel: ConvKernel) -> None:
    """A field of a kernel parsed from a short name equals the kernel's or is not set."""
    parsed = parse_kernel_name(amd_short_name(kernel))
    held = {"variant", "dtype", "ndim_spatial", "tile_m", "tile_n", "tile_k", "pipeline", "scheduler"}
    held |= {"double_smem_buffer", "split_image", "num_groups_to_merge", "two_stage"}
    for field in fields(ConvKernel):
        if field.name in held:
            assert getattr(parsed, field.name) == getattr(kernel, field.name)
        else:
            assert getattr(parsed, field.name) in (None, field.default)


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
    kernel = parse_kernel_name(SHORT + suffix)
    assert (kernel.pipeline, kernel.scheduler) == ("compv3", Scheduler.INTRAWAVE)
    assert (kernel.tile_m, kernel.tile_n, kernel.tile_k) == (16, 64, 64)
    flags = (kernel.num_groups_to_merge, kernel.double_smem_buffer, kernel.split_image, kernel.two_stage)
    assert flags == expected
    assert (kernel.wave_m, kernel.vector_a, kernel.layout, kernel.epilogue, kernel.pad_m) == (None,) * 5
    assert not kernel.is_complete
    assert amd_short_name(kernel) == SHORT + suffix


def test_short_name_without_a_scheduler_is_intrawave() -> None:
    """As in AMD's parser, a missing scheduler is intrawave; interwave is parsed as interwave."""
    assert parse_kernel_name("grouped_conv_bwd_data_fp16_3d_64x64x64_basic_v1_dsb").scheduler is Scheduler.INTRAWAVE
    kernel = parse_kernel_name("grouped_conv_bwd_data_fp16_3d_64x64x64_basic_v1_interwave_dsb")
    assert kernel.scheduler is Scheduler.INTERWAVE
    assert kernel.double_smem_buffer


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "operation"),
        ("gemm_universal_fp8_rcr_compv4", "operation"),
        ("grouped_conv_sideways_bf16_2d", "direction"),
        ("grouped_conv_fwd_fp9_nhwgc_2d", "dtype"),
        ("grouped_conv_fwd_bf16_nhwgc_9d_mem", "number of dimensions"),
        (PLAIN.replace("intrawave", "outerwave"), "scheduler"),
        (PLAIN.replace("16x64x64", "16x64"), "tile"),
        (PLAIN.replace("_1x4x1_", "_1x4_"), "waves"),
        (PLAIN.removesuffix("16x16x16"), "warp tile"),
        (SHORT.replace("16x64x64", "16x64"), "tile"),
        (PLAIN + "_gm2_vec1_1_1", "end '_vec1_1_1'"),
        (PLAIN + "_pad111x", "end 'x'"),
        (PLAIN.replace("basic_v1", "compv3_fast"), "epilogue"),
        (PLAIN.replace("basic_v1", "fast"), "pipeline"),
        (SHORT + "_si_dsb", "end '_dsb'"),
        (SHORT.replace("compv3", "compv3_fast"), "end '_fast_intrawave'"),
    ],
)
def test_an_invalid_name_reports_the_wrong_part(text: str, part: str) -> None:
    """The message names the first invalid part."""
    with pytest.raises(DataError) as caught:
        parse_kernel_name(text)
    assert f"its {part} is" in caught.value.message
    assert repr(text) in caught.value.message


def test_an_unnameable_kernel_is_refused(plain: ConvKernel) -> None:
    """An incomplete kernel, or a kernel with a value without token, has no complete name."""
    with pytest.raises(UsageError, match="incomplete"):
        kernel_name(parse_kernel_name(SHORT))
    with pytest.raises(UsageError, match="filter5x5"):
        kernel_name(replace(plain, specialization="filter5x5"))
    with pytest.raises(UsageError, match="compv3_fast"):
        kernel_name(replace(plain, pipeline="compv3_fast"))
    with pytest.raises(UsageError, match="atomic"):
        kernel_name(replace(plain, streamk="atomic"))
