"""The reference compared with the definition of a convolution, product by product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ckh.ops.grouped_conv.measuring.reference import convolve, operand_shapes, reduction_length
from ckh.ops.grouped_conv.problem import ConvProblem, parse_conv_problem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = NDArray[Any]

PROBLEMS: dict[str, str] = {
    "3x3": "fp32_nhwgc_2d_n2_c5_k4_g1_i6x7_f3x3_s1x1_p1x1_d1x1",
    "1x1": "fp32_nhwgc_2d_n2_c7_k3_g1_i5x4_f1x1_s1x1_p0x0_d1x1",
    "1x1 with stride": "fp32_nhwgc_2d_n1_c3_k2_g1_i7x6_f1x1_s2x3_p0x0_d1x1",
    "everything differs by axis": "fp32_nhwgc_2d_n2_c4_k6_g2_i11x9_f3x2_s2x3_p3x1_d2x3",
    "groups": "fp32_nhwgc_2d_n1_c12_k8_g4_i5x6_f3x3_s1x1_p0x2_d1x1",
    "filter as large as the image": "fp32_nhwgc_2d_n3_c2_k3_g1_i4x5_f4x5_s1x1_p0x0_d1x1",
    "more padding than filter": "fp32_nhwgc_2d_n1_c2_k2_g1_i3x2_f2x1_s1x1_p4x0_d1x1",
    "taps in several chunks": "fp32_nhwgc_2d_n1_c200_k2_g1_i4x5_f3x3_s1x1_p1x0_d1x1",
    "depthwise": "fp32_nhwgc_2d_n2_c9_k9_g9_i6x5_f3x3_s1x1_p1x2_d1x1",
    "depthwise, everything differs": "fp32_nhwgc_2d_n2_c3_k3_g3_i12x9_f3x2_s3x2_p2x1_d2x3",
    "depthwise with two outputs a group": "fp32_nhwgc_2d_n1_c5_k10_g5_i5x5_f3x3_s1x1_p0x0_d1x1",
    "depthwise in several blocks": "fp32_nhwgc_2d_n1_c512_k512_g512_i27x12_f2x1_s2x1_p0x0_d1x1",
    "3D": "fp32_ndhwgc_3d_n1_c3_k4_g1_i5x4x6_f3x2x3_s2x1x3_p2x1x0_d1x2x1",
    "3D, groups": "fp32_ndhwgc_3d_n2_c6_k4_g2_i6x3x4_f2x3x2_s1x2x1_p0x1x3_d3x1x1",
    "3D, depthwise": "fp32_ndhwgc_3d_n2_c4_k4_g4_i5x6x4_f3x3x1_s2x2x1_p1x0x0_d1x2x1",
}
every_problem = pytest.mark.parametrize("text", PROBLEMS.values(), ids=PROBLEMS.keys())
every_direction = pytest.mark.parametrize("direction", list(Direction))


def problem(text: str, direction: Direction) -> ConvProblem:
    """The problem of a line of the table."""
    return parse_conv_problem(f"conv_{direction}_{text}")


def whole_numbers(shape: tuple[int, ...], seed: int) -> Array:
    """Small whole numbers as float64: sums of their products are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def meetings(p: ConvProblem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Yield every (image and output pixel, tap, image and input pixel) of one product, in three dimensions."""
    strides, pads = (p.stride_d, p.stride_h, p.stride_w), (p.pad_d, p.pad_h, p.pad_w)
    dilations, sizes = (p.dilation_d, p.dilation_h, p.dilation_w), (p.di, p.hi, p.wi)
    for image, *output in np.ndindex(p.n, p.do, p.ho, p.wo):
        for tap in np.ndindex(p.z, p.y, p.x):
            pixel = tuple(output[i] * strides[i] - pads[i] + tap[i] * dilations[i] for i in range(3))
            if all(0 <= pixel[i] < sizes[i] for i in range(3)):
                yield (image, *output), tap, (image, *pixel)


def by_definition(p: ConvProblem, a: Array, b: Array) -> Array:
    """Return the result as the sum of all products."""
    x_shape = (p.n, p.di, p.hi, p.wi, p.g, p.c // p.g)
    w_shape = (p.g, p.k // p.g, p.z, p.y, p.x, p.c // p.g)
    y_shape = (p.n, p.do, p.ho, p.wo, p.g, p.k // p.g)
    if p.variant is Direction.FORWARD:
        x, w, out = a.reshape(x_shape), b.reshape(w_shape), np.zeros(y_shape)
        for output, (i, j, k), pixel in meetings(p):
            out[output] += np.einsum("gc,gkc->gk", x[pixel], w[:, :, i, j, k])
    elif p.variant is Direction.BWD_DATA:
        dy, w, out = a.reshape(y_shape), b.reshape(w_shape), np.zeros(x_shape)
        for output, (i, j, k), pixel in meetings(p):
            out[pixel] += np.einsum("gk,gkc->gc", dy[output], w[:, :, i, j, k])
    else:
        dy, x, out = a.reshape(y_shape), b.reshape(x_shape), np.zeros(w_shape)
        for output, (i, j, k), pixel in meetings(p):
            out[:, :, i, j, k] += np.einsum("gk,gc->gkc", dy[output], x[pixel])
    return out


@every_problem
@every_direction
def test_convolve_is_the_definition(text: str, direction: Direction) -> None:
    """The result is exactly the sum of all products, and has the shape of the result's tensor."""
    p = problem(text, direction)
    shape_a, shape_b, shape_out = operand_shapes(p)
    a, b = whole_numbers(shape_a, 1), whole_numbers(shape_b, 2)
    expected = by_definition(p, a, b)
    assert np.count_nonzero(expected) > 0
    result = convolve(p, a, b)
    assert result.shape == shape_out
    np.testing.assert_array_equal(result, expected.reshape(shape_out))


@st.composite
def _any_sizes(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes of problems in 2D and 3D, many of them depthwise."""
    ndim = draw(st.sampled_from((2, 3)))
    group = draw(st.integers(1, 5))
    sizes: dict[str, Any] = {"n": draw(st.integers(1, 3)), "g": group, "ndim": ndim}
    sizes |= {"c": group * draw(st.sampled_from((1, 1, 2, 3))), "k": group * draw(st.sampled_from((1, 1, 2, 5)))}
    for axis, size, taps in (("d", "di", "z"), ("h", "hi", "y"), ("w", "wi", "x"))[3 - ndim :]:
        sizes |= {size: draw(st.integers(1, 9)), taps: draw(st.integers(1, 4)), f"pad_{axis}": draw(st.integers(0, 3))}
        sizes |= {f"stride_{axis}": draw(st.integers(1, 3)), f"dilation_{axis}": draw(st.integers(1, 3))}
        assume(sizes[size] + 2 * sizes[f"pad_{axis}"] > sizes[f"dilation_{axis}"] * (sizes[taps] - 1))
    return sizes


@settings(deadline=None, max_examples=150)
@given(_any_sizes())
def test_backward_directions_are_adjoints_of_forward(sizes: dict[str, Any]) -> None:
    """<conv(x, w), dy> = <x, bwd_data(dy, w)> = <w, bwd_weight(dy, x)>, exactly in whole numbers."""
    p = ConvProblem(Direction.FORWARD, **sizes)
    x, w, dy = (whole_numbers(shape, seed) for seed, shape in enumerate(operand_shapes(p)))
    forward = np.vdot(convolve(p, x, w), dy)
    assert np.vdot(convolve(p.replaced(variant=Direction.BWD_DATA), dy, w), x) == forward
    assert np.vdot(convolve(p.replaced(variant=Direction.BWD_WEIGHT), dy, x), w) == forward


@every_direction
@pytest.mark.parametrize("name", ["groups", "depthwise"])
def test_precision_is_that_of_the_operands(name: str, direction: Direction) -> None:
    """Operands of float32 give a result of float32, and of float64 one of float64."""
    p = problem(PROBLEMS[name], direction)
    a, b = (whole_numbers(shape, 3) for shape in operand_shapes(p)[:2])
    assert convolve(p, a, b).dtype == np.float64
    single = convolve(p, a.astype(np.float32), b.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, convolve(p, a, b))


@every_direction
def test_operands_are_not_written(direction: Direction) -> None:
    """Read-only operands, as in the worker, are sufficient."""
    for name in ("3x3", "depthwise"):
        p = problem(PROBLEMS[name], direction)
        a, b = (whole_numbers(shape, 4) for shape in operand_shapes(p)[:2])
        a.flags.writeable = b.flags.writeable = False
        convolve(p, a, b)


def test_operands_and_reduction_lengths_by_hand() -> None:
    """Forward takes x and w, bwd_data dy and w, bwd_weight dy and x; each sums over another axis."""
    p = problem(PROBLEMS["groups"], Direction.FORWARD)
    x, w, y = (1, 5, 6, 4, 3), (4, 2, 3, 3, 3), (1, 3, 8, 4, 2)
    assert operand_shapes(p) == (x, w, y)
    assert operand_shapes(p.replaced(variant=Direction.BWD_DATA)) == (y, w, x)
    assert operand_shapes(p.replaced(variant=Direction.BWD_WEIGHT)) == (y, x, w)
    assert [reduction_length(p.replaced(variant=direction)) for direction in Direction] == [9 * 3, 9 * 2, 3 * 8]
