"""Problems: identity, derived sizes, and rejection of impossible problems."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ckh.cli import run
from ckh.errors import ExitCode, UsageError
from ckh.ops.grouped_conv.problem import ConvProblem, parse_conv_problem
from ckh.problems import Direction

if TYPE_CHECKING:
    from pathlib import Path

RESNET: dict[str, Any] = {"n": 1, "c": 64, "k": 128, "g": 1, "hi": 28, "wi": 30, "y": 3, "x": 3}


def problem(**changes: Any) -> ConvProblem:
    return ConvProblem(**{"variant": Direction.FORWARD, **RESNET, **changes})


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    """Problems in 2D and 3D, small enough to count by loops."""
    ndim = draw(st.sampled_from((2, 3)))
    group, c, k = (draw(st.integers(1, 4)) for _ in range(3))
    sizes: dict[str, Any] = {"n": draw(st.integers(1, 3)), "g": group, "c": c * group, "k": k * group}
    for axis, size, taps in (("d", "di", "z"), ("h", "hi", "y"), ("w", "wi", "x"))[3 - ndim :]:
        sizes |= {size: draw(st.integers(1, 9)), taps: draw(st.integers(1, 4)), f"pad_{axis}": draw(st.integers(0, 3))}
        sizes |= {f"stride_{axis}": draw(st.integers(1, 3)), f"dilation_{axis}": draw(st.integers(1, 3))}
        assume(sizes[size] + 2 * sizes[f"pad_{axis}"] > sizes[f"dilation_{axis}"] * (sizes[taps] - 1))
    return ConvProblem(
        draw(st.sampled_from(Direction)), **sizes, ndim=ndim, dtype=draw(st.sampled_from(["fp32", "bf16"]))
    )


def outputs_by_counting(size: int, taps: int, stride: int, pad: int, dilation: int) -> int:
    """Positions at which the whole filter is inside the padded input."""
    starts = range(0, size + 2 * pad, stride)
    return sum(start + dilation * (taps - 1) < size + 2 * pad for start in starts)


@given(problems())
def test_output_sizes_are_the_positions_of_the_filter(p: ConvProblem) -> None:
    """The formula agrees with counting the positions of the filter."""
    assert p.do == outputs_by_counting(p.di, p.z, p.stride_d, p.pad_d, p.dilation_d)
    assert p.ho == outputs_by_counting(p.hi, p.y, p.stride_h, p.pad_h, p.dilation_h)
    assert p.wo == outputs_by_counting(p.wi, p.x, p.stride_w, p.pad_w, p.dilation_w)


@given(problems())
def test_gemm_sizes_multiply_to_the_flops_of_forward_and_bwd_weight(p: ConvProblem) -> None:
    """2 * M * N * K * G is the work; bwd_data counts input pixels instead of output pixels."""
    for direction in (Direction.FORWARD, Direction.BWD_WEIGHT):
        m, n, k = p.replaced(variant=direction).gemm_sizes
        assert 2 * m * n * k * p.g == p.flops
    m, n, k = p.replaced(variant=Direction.BWD_DATA).gemm_sizes
    assert m * n * k * p.do * p.ho * p.wo * 2 * p.g == p.flops * p.di * p.hi * p.wi


def test_known_numbers_of_one_layer() -> None:
    """A 3x3 layer with stride 2, by hand."""
    p = problem(stride_h=2, stride_w=2, pad_h=1, pad_w=1, dtype="bf16")
    assert (p.ho, p.wo) == (14, 15)
    assert p.flops == 2 * 1 * 128 * 64 * 14 * 15 * 9
    assert p.bytes == 2 * (64 * 28 * 30 + 128 * 64 * 9 + 128 * 14 * 15)
    assert p.input_shape == (1, 28, 30, 1, 64)
    assert p.weight_shape == (1, 128, 3, 3, 64)
    assert p.output_shape == (1, 14, 15, 1, 128)
    assert p.gemm_sizes == (210, 128, 576)
    assert p.replaced(variant=Direction.BWD_WEIGHT).gemm_sizes == (128, 576, 210)
    assert p.replaced(variant=Direction.BWD_DATA).gemm_sizes == (840, 64, 1152)


def test_shapes_of_a_grouped_3d_problem() -> None:
    """Groups precede channels and depth precedes height."""
    p = problem(ndim=3, di=4, z=3, g=4)
    assert p.layout == "ndhwgc"
    assert p.input_shape == (1, 4, 28, 30, 4, 16)
    assert p.weight_shape == (4, 32, 3, 3, 3, 16)
    assert p.output_shape == (1, 2, 26, 28, 4, 32)
    assert (p.c_per_group, p.k_per_group) == (16, 32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n": 0}, "N must be 1 or more"),
        ({"pad_h": -1}, "pad_h must be 0 or more"),
        ({"c": 2**31}, "below 2^31"),
        ({"wi": 28.0}, "Wi must be an integer"),
        ({"g": True}, "G must be an integer"),
        ({"g": 3}, "C=64 is not divisible by G=3"),
        ({"k": 100, "g": 8}, "K=100 is not divisible by G=8"),
        ({"hi": 2}, "does not fit the padded input"),
        ({"di": 4}, "2D convolution has no depth"),
        ({"ndim": 1}, "ndim must be 2 or 3"),
        ({"layout": "nchw"}, "layout 'nchw' is not supported"),
        ({"dtype": "fp13"}, "unknown dtype 'fp13'"),
        ({"variant": "sideways"}, "unknown direction 'sideways'"),
    ],
)
def test_impossible_problems_are_refused(changes: dict[str, Any], words: str) -> None:
    """Impossible problems are usage errors with a reason."""
    with pytest.raises(UsageError) as caught:
        problem(**changes)
    assert words in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28_f3x3_s1x1_p1x1_d1x1",
        "conv_forward_fp32_nhwgc_3d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1",
        "conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1_x",
    ],
)
def test_invalid_problem_text_is_refused(text: str) -> None:
    """A malformed text, or a text of the wrong number of dimensions, is refused."""
    with pytest.raises(UsageError, match="not a"):
        parse_conv_problem(text)


def test_columns_are_the_19_of_amd() -> None:
    """The sizes have AMD's names, in AMD's order."""
    columns = problem(pad_h=2).columns()
    assert len(columns) == 19
    assert list(columns)[:7] == ["N", "C", "K", "G", "Di", "Hi", "Wi"]
    assert (columns["Wi"], columns["pad_h"], columns["Di"]) == (30, 2, 1)


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["--ndim", "1"], "2D with Hi = 1 and Y = 1"),
        (["--layout", "ngchw"], "channels last"),
        (["--problems", "conv_forward_fp32_nwgc_1d_n1_c64_k64_g1_i28_f3_s1_p1_d1"], "2D with Hi = 1 and Y = 1"),
        (["--problems", "conv_forward_fp32_ngchw_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1"], "channels last"),
    ],
)
def test_a_refused_shape_has_a_remedy(
    args: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1D and channels-first layouts are refused with the reason and the equivalent convolution that ckh supports."""
    if args[0] == "--problems":
        (tmp_path / "problems.txt").write_text(args[1])
        args = ["--problems", str(tmp_path / "problems.txt")]
    assert run(["predict", *args]) == ExitCode.USAGE or args[0] == "--problems"
    *_, error, remedy = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert hint in remedy


def test_1d_is_2d_of_height_1(capsys: pytest.CaptureFixture[str]) -> None:
    """The hint gives the same convolution: one row, by default without padding."""
    assert run(["predict", "--c", "64", "--hi", "1", "--wi", "28", "--y", "1", "--x", "3", "--json"]) == ExitCode.OK
    sizes = json.loads(capsys.readouterr().out)["sizes"]
    assert (sizes["hi"], sizes["y"], sizes["pad_h"]) == (1, 1, 0)
    assert (sizes["wi"], sizes["x"], sizes["pad_w"]) == (28, 3, 1)
