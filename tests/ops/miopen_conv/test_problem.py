"""`MiopenProblem`: identity, round trip, checks."""

from __future__ import annotations

import itertools

import pytest

from ckh.errors import UsageError
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.miopen_conv.problem import DTYPES, LAYOUTS, MiopenProblem, parse_miopen_problem
from ckh.problems import Direction

FORWARD = Direction.FORWARD


def test_problem_text_round_trips() -> None:
    """All 3 x 4 x 4 kinds of problems survive the round trip, with distinct texts."""
    texts = set()
    for direction, dtype, ndim in itertools.product(Direction, DTYPES, LAYOUTS):
        for layout in LAYOUTS[ndim]:
            depth = {"di": 5, "z": 3, "pad_d": 1, "stride_d": 2, "dilation_d": 2} if ndim == 3 else {}
            problem = MiopenProblem(
                direction, 2, 12, 24, 4, 9, 7, 3, 1, stride_h=2, pad_h=1, dtype=dtype, layout=layout, ndim=ndim, **depth
            )
            texts.add(problem.canonical())
            assert parse_miopen_problem(problem.canonical()) == problem
    assert len(texts) == 3 * 4 * 4


def test_the_canonical_text_is_complete() -> None:
    """The text of a strided, padded, dilated and grouped problem equals one written by hand."""
    problem = MiopenProblem(FORWARD, 2, 12, 24, 4, 9, 7, 3, 1, 2, 1, 1, 0, dilation_h=2, dtype="bf16", layout="nhwc")
    assert problem.canonical() == "miopen_conv_forward_bf16_nhwc_2d_n2_c12_k24_g4_i9x7_f3x1_s2x1_p1x0_d2x1"


@pytest.mark.parametrize("direction", Direction)
def test_sizes_equal_grouped_conv(direction: Direction) -> None:
    """Flops, bytes and GEMM sizes equal those of a ConvProblem; only the layout differs."""
    sizes = (direction, 2, 12, 24, 4, 9, 7, 3, 1)
    here, there = MiopenProblem(*sizes), ConvProblem(*sizes)
    assert (here.flops, here.bytes, here.gemm_sizes) == (there.flops, there.bytes, there.gemm_sizes)
    assert here.flops == 2 * 2 * 24 * 3 * 7 * 7 * 3
    assert here.layout == "nchw"
    assert here != there
    assert here != MiopenProblem(*sizes, layout="nhwc")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": "nhwgc"}, "layout 'nhwgc' is not one of MIOpen's in 2D"),
        ({"layout": "ncdhw"}, "layout 'ncdhw' is not one of MIOpen's in 2D"),
        ({"dtype": "fp64"}, "no dtype 'fp64'"),
        ({"g": 5}, "C=12 is not divisible by G=5"),
        ({"hi": 1}, "does not fit"),
        ({"n": 0}, "N must be 1 or more"),
        ({"z": 2}, "no depth"),
    ],
)
def test_impossible_problems_are_refused(changes: dict[str, object], message: str) -> None:
    """A problem that MIOpen cannot have is refused with the broken rule."""
    good: dict[str, object] = {"variant": FORWARD, "n": 1, "c": 12, "k": 24, "g": 4, "hi": 9, "wi": 7, "y": 3, "x": 1}
    with pytest.raises(UsageError, match=message):
        MiopenProblem(**{**good, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "conv_forward_fp32_nchw_2d_n1_c1_k1_g1_i1x1_f1x1_s1x1_p0x0_d1x1",
        "miopen_conv_forward_fp32_nchw_3d_n1_c1_k1_g1_i1x1_f1x1_s1x1_p0x0_d1x1",
        "miopen_conv_forward_fp32_ncdhw_2d_n1_c1_k1_g1_i1x1_f1x1_s1x1_p0x0_d1x1",
        "miopen_conv_sideways_fp32_nchw_2d_n1_c1_k1_g1_i1x1_f1x1_s1x1_p0x0_d1x1",
        "miopen_conv_forward_fp32_nchw_2d_n1_c1_k1_g1_i1x1_f1x1_s1x1_p0x0_d1x1_more",
        "miopen_conv_forward_fp32_nchw_2d_n99999999999_c1_k1_g1_i1x1_f1x1_s1x1_p0x0_d1x1",
    ],
)
def test_invalid_problem_texts_are_refused(text: str) -> None:
    """Texts of another form, direction or layout are refused."""
    with pytest.raises(UsageError):
        parse_miopen_problem(text)
