"""Padding of channels: another problem, with C and K per group rounded up."""

from __future__ import annotations

import pytest

from ckh.ops.grouped_conv.problem import parse_conv_problem
from ckh.ops.grouped_conv.requested import pad_channels


def padded(text: str) -> str:
    """Return the padded problem, by the middle part of its name."""
    (result,) = pad_channels([parse_conv_problem(f"conv_forward_fp16_nhwgc_2d_n2_{text}_i9x9_f3x3_s1x1_p1x1_d1x1")])
    return result.canonical().removeprefix("conv_forward_fp16_nhwgc_2d_n2_").removesuffix("_i9x9_f3x3_s1x1_p1x1_d1x1")


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("c3_k64_g1", "c8_k64_g1"),
        ("c64_k1000_g1", "c64_k1000_g1"),
        ("c17_k9_g1", "c24_k16_g1"),
        ("c8_k8_g1", "c8_k8_g1"),
        # Per group: 3 and 5 become 8 and 8; depthwise becomes 8 channels per group.
        ("c12_k20_g4", "c32_k32_g4"),
        ("c32_k32_g32", "c256_k256_g32"),
    ],
)
def test_channels_of_each_group_are_rounded_up(problem: str, expected: str) -> None:
    """C/G and K/G become multiples of 8, all else is unchanged."""
    assert padded(problem) == expected


def test_problems_equal_after_padding_are_merged() -> None:
    """Order is kept, and a problem that equals another's padding occurs once."""
    texts = ("c3_k8_g1", "c16_k8_g1", "c8_k8_g1", "c7_k1_g1")
    problems = [parse_conv_problem(f"conv_bwd_data_fp32_nhwgc_2d_n1_{text}_i4x4_f1x1_s1x1_p0x0_d1x1") for text in texts]
    assert [(p.c, p.k) for p in pad_channels(problems)] == [(8, 8), (16, 8)]
    assert pad_channels([]) == ()
