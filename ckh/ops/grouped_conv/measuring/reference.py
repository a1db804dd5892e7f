"""Grouped convolutions in NumPy, the reference that kernels are verified against.

Independent of the kernels' algorithm: taps are gathered in chunks and multiplied as matrices by BLAS, one product per
group; depthwise problems are multiplied and added element by element. 2D is depth 1.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.bench.computation import ArrayForm, Contraction, Operand, Role, dense_strides
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.ops.grouped_conv.problem import ConvProblem

Array = NDArray[Any]

_CHUNK_WIDTH = 512  # columns of a gathered matrix, enough to keep BLAS busy
_CHUNK_BYTES = 128 << 20

_AXES = {2: ("H, W", "Y, X"), 3: ("D, H, W", "Z, Y, X")}  # axes of pixels and of taps

_Tap = tuple[int, tuple[slice, slice, slice]]


def operand_shapes(problem: ConvProblem) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shapes of a kernel's operands a and b and of its result."""
    x, w, y = problem.input_shape, problem.weight_shape, problem.output_shape
    by_direction = {Direction.FORWARD: (x, w, y), Direction.BWD_DATA: (y, w, x), Direction.BWD_WEIGHT: (y, x, w)}
    return by_direction[problem.variant]


# Tensors of each direction in the order of users' arrays, the result last, with their positions as kernel arguments.
_ARRAYS = {
    Direction.FORWARD: (("x", 0), ("w", 1), ("y", 2)),
    Direction.BWD_DATA: (("dy", 0), ("w", 1), ("dx", 2)),
    Direction.BWD_WEIGHT: (("x", 1), ("dy", 0), ("dw", 2)),
}


def operands(problem: ConvProblem) -> tuple[Operand, ...]:
    """Operands a and b, and the result."""
    a, b, out = operand_shapes(problem)
    dtype = problem.dtype
    return Operand("a", a, dtype), Operand("b", b, dtype), Operand("out", out, dtype, Role.OUTPUT)


def array_forms(problem: ConvProblem) -> tuple[ArrayForm, ArrayForm, ArrayForm]:
    """X, W and Y or their gradients, channels last: x, w → y, or dy, w → dx, or x, dy → dw."""
    pixels, taps = _AXES[problem.ndim]
    x, w, y = problem.input_shape, problem.weight_shape, problem.output_shape
    tensors = {
        "x": (x, f"N, {pixels}, G, C/G", (*x[:-2], problem.c)),
        "w": (w, f"G, K/G, {taps}, C/G", (problem.k, *w[2:])),
        "y": (y, f"N, {pixels}, G, K/G", (*y[:-2], problem.k)),
    }
    first, second, result = (ArrayForm(name, place, *tensors[name[-1]]) for name, place in _ARRAYS[problem.variant])
    return first, second, result


def reduction_length(problem: ConvProblem) -> int:
    """Maximum number of products summed in one element of the result."""
    return problem.gemm_sizes[2]


def contractions(problem: ConvProblem) -> tuple[Contraction]:
    """Return the convolution as loops over its operands: pixels and taps meet in pixels of the other side."""
    (inputs, taps, outputs), (steps, pads, dilations) = _sizes(problem), _distances(problem)
    c, k, none, ones = problem.c_per_group, problem.k_per_group, (0, 0, 0), (1, 1, 1)
    x = dense_strides((problem.n, *inputs, problem.g, c))
    y = dense_strides((problem.n, *outputs, problem.g, k))
    w = dense_strides((problem.g, k, *taps, c))
    x_n, x_g, x_c, x_at = x[0], x[4], x[5], x[1:4]
    y_n, y_g, y_k, y_at = y[0], y[4], y[5], y[1:4]
    w_g, w_k, w_c, w_at = w[0], w[1], w[5], w[2:5]
    before = tuple(-pad for pad in pads)
    sums: tuple[Sequence[int], ...]
    if problem.variant is Direction.BWD_WEIGHT:
        sums = (problem.g, k, *taps, c, 1), (y_g, y_k, *none, 0, 0), (x_g, 0, *none, x_c, 0)
        sums += (*outputs, problem.n), (*y_at, y_n), (*none, x_n)
        return (Contraction(0, 0, 0, *sums, dilations, steps, before, ones, inputs, none, x_at),)
    if problem.variant is Direction.FORWARD:
        sums = (1, problem.n, *outputs, problem.g, k), (0, x_n, *none, x_g, 0), (0, 0, *none, w_g, w_k)
        sums += (*taps, c), (*none, x_c), (*w_at, w_c)
        return (Contraction(0, 0, 0, *sums, steps, dilations, before, ones, inputs, x_at, none),)
    sums = (1, problem.n, *inputs, problem.g, c), (0, y_n, *none, y_g, 0), (0, 0, *none, w_g, w_c)
    sums += (*taps, k), (*none, y_k), (*w_at, w_k)
    backwards = tuple(-dilation for dilation in dilations)
    return (Contraction(0, 0, 0, *sums, ones, backwards, pads, steps, outputs, y_at, none),)


def factors(problem: ConvProblem, index: tuple[int, ...], a: Array, b: Array) -> tuple[Array, Array]:
    """Return the factors of the products of one element of the result."""
    depth = (0,) * (len(_sizes(problem)) - problem.ndim)
    if problem.variant is Direction.BWD_WEIGHT:
        group, k, *at, c = index
        ys, xs = zip(*_meetings(problem, (*depth, *at)), strict=True)
        images = np.arange(problem.n)
        dy, x = _pixels(problem, a, 2)[..., group, k], _pixels(problem, b, 0)[..., group, c]
        return dy[np.ix_(images, *ys)], x[np.ix_(images, *xs)]
    image, *at, group, channel = index
    taps, met = zip(*_meetings(problem, (*depth, *at)), strict=True)
    weights = b.reshape(problem.g, problem.k_per_group, *_sizes(problem)[1], problem.c_per_group)[group]
    is_forward = problem.variant is Direction.FORWARD
    of_channel = weights[channel] if is_forward else np.moveaxis(weights[..., channel], 0, 3)
    return _pixels(problem, a, 0 if is_forward else 2)[image, ..., group, :][np.ix_(*met)], of_channel[np.ix_(*taps)]


def _meetings(problem: ConvProblem, at: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
    """Yield, for each spatial axis, the taps that an element at a place reads, and the pixels there.

    For backward weight, pixels of dY and of X that a tap brings together.
    """
    for place, (pixels, taps, outputs), (step, pad, dilation) in zip(
        at, zip(*_sizes(problem), strict=True), zip(*_distances(problem), strict=True), strict=True
    ):
        if problem.variant is Direction.BWD_DATA:
            own = np.arange(taps)
            met, rest = np.divmod(place + pad - own * dilation, step)
            right = (rest == 0) & (met >= 0) & (met < outputs)
        else:
            is_weight = problem.variant is Direction.BWD_WEIGHT
            own = np.arange(outputs if is_weight else taps)
            met = (own * step + place * dilation if is_weight else place * step + own * dilation) - pad
            right = (met >= 0) & (met < pixels)
        yield own[right], met[right]


def _pixels(problem: ConvProblem, tensor: Array, side: int) -> Array:
    """Return X (side 0) or Y (side 2) as N, D, H, W, G, channels of a group."""
    return tensor.reshape(problem.n, *_sizes(problem)[side], problem.g, -1)


def _distances(problem: ConvProblem) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]:
    """Strides, paddings and dilations along depth, height and width."""
    return (
        (problem.stride_d, problem.stride_h, problem.stride_w),
        (problem.pad_d, problem.pad_h, problem.pad_w),
        (problem.dilation_d, problem.dilation_h, problem.dilation_w),
    )


def convolve(problem: ConvProblem, a: Array, b: Array) -> Array:
    """Return the result of a problem in the precision of its operands, which have the shapes of `operand_shapes`."""
    compute = _COMPUTED[problem.variant][problem.c_per_group == problem.k_per_group == 1]
    return compute(problem, a, b).reshape(operand_shapes(problem)[2])


def _sizes(problem: ConvProblem) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]:
    """Depth, height and width of input, filter and output."""
    return (problem.di, problem.hi, problem.wi), (problem.z, problem.y, problem.x), (problem.do, problem.ho, problem.wo)


def _taps(problem: ConvProblem) -> Iterator[_Tap]:
    """Yield every tap's index and the pixels of the padded input that it reads."""
    _, taps, outputs = _sizes(problem)
    strides, _, dilations = _distances(problem)
    for index, position in enumerate(np.ndindex(*taps)):
        starts = [at * dilation for at, dilation in zip(position, dilations, strict=True)]
        d, h, w = (slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(starts, outputs, strides, strict=True))
        yield index, (d, h, w)


def _padded_sizes(problem: ConvProblem) -> tuple[int, int, int]:
    d, h, w = (size + 2 * pad for size, pad in zip(_sizes(problem)[0], _distances(problem)[1], strict=True))
    return d, h, w


def _inside(problem: ConvProblem, axis: int) -> tuple[slice, ...]:
    """Index of the input without padding, for spatial axes from `axis` on."""
    ranges = zip(_sizes(problem)[0], _distances(problem)[1], strict=True)
    spatial = (slice(pad, pad + size) for size, pad in ranges)
    return (*(slice(None),) * axis, *spatial)


def _padded_groups(problem: ConvProblem, x: Array) -> Array:
    """Return X as G, N, D, H, W, C/G, padded with zeros."""
    padded = np.zeros((problem.g, problem.n, *_padded_sizes(problem), problem.c_per_group), x.dtype)
    pixels = x.reshape(problem.n, *_sizes(problem)[0], problem.g, problem.c_per_group)
    padded[_inside(problem, 2)] = np.moveaxis(pixels, 4, 0)
    return padded


def _output_groups(problem: ConvProblem, y: Array) -> Array:
    """Return Y as G, pixels, K/G."""
    return np.ascontiguousarray(np.moveaxis(y.reshape(-1, problem.g, problem.k_per_group), 1, 0))


def _chunks(problem: ConvProblem, itemsize: int) -> Iterator[list[_Tap]]:
    pixels = problem.n * problem.do * problem.ho * problem.wo
    per_tap = pixels * problem.c * itemsize
    size = max(1, min(_CHUNK_WIDTH // problem.c_per_group, _CHUNK_BYTES // per_tap))
    taps = list(_taps(problem))
    for start in range(0, len(taps), size):
        yield taps[start : start + size]


def _gather(problem: ConvProblem, padded: Array, chunk: list[_Tap]) -> Array:
    """Return the inputs that the taps of a chunk read, as G, pixels, taps * C/G."""
    outputs = _sizes(problem)[2]
    columns = np.empty((problem.g, problem.n, *outputs, len(chunk), problem.c_per_group), padded.dtype)
    for position, (_, (d, h, w)) in enumerate(chunk):
        columns[..., position, :] = padded[:, :, d, h, w]
    return columns.reshape(problem.g, -1, len(chunk) * problem.c_per_group)


def _filter_columns(problem: ConvProblem, w: Array, chunk: list[_Tap]) -> Array:
    """Return the filter's taps of a chunk, as G, K/G, taps * C/G."""
    taps = w.reshape(problem.g, problem.k_per_group, -1, problem.c_per_group)
    part = taps[:, :, chunk[0][0] : chunk[-1][0] + 1]
    return part.reshape(problem.g, problem.k_per_group, -1)


def _forward(problem: ConvProblem, x: Array, w: Array) -> Array:
    padded = _padded_groups(problem, x)
    total: Array | None = None
    for chunk in _chunks(problem, x.itemsize):
        product = _gather(problem, padded, chunk) @ _filter_columns(problem, w, chunk).swapaxes(1, 2)
        total = product if total is None else np.add(total, product, out=total)
    assert total is not None
    return np.moveaxis(total, 0, 1)


def _bwd_data(problem: ConvProblem, dy: Array, w: Array) -> Array:
    padded = np.zeros((problem.g, problem.n, *_padded_sizes(problem), problem.c_per_group), dy.dtype)
    gradients, outputs = _output_groups(problem, dy), _sizes(problem)[2]
    for chunk in _chunks(problem, dy.itemsize):
        columns = gradients @ _filter_columns(problem, w, chunk)
        columns = columns.reshape(problem.g, problem.n, *outputs, len(chunk), problem.c_per_group)
        for position, (_, (d, h, width)) in enumerate(chunk):
            padded[:, :, d, h, width] += columns[..., position, :]
    return np.moveaxis(padded[_inside(problem, 2)], 0, 4)


def _bwd_weight(problem: ConvProblem, dy: Array, x: Array) -> Array:
    padded, gradients = _padded_groups(problem, x), _output_groups(problem, dy).swapaxes(1, 2)
    products = [gradients @ _gather(problem, padded, chunk) for chunk in _chunks(problem, dy.itemsize)]
    return np.concatenate(products, axis=2)


def _padded_pixels(problem: ConvProblem, x: Array) -> Array:
    padded = np.zeros((problem.n, *_padded_sizes(problem), problem.g), x.dtype)
    padded[_inside(problem, 1)] = x.reshape(problem.n, *_sizes(problem)[0], problem.g)
    return padded


def _depthwise_forward(problem: ConvProblem, x: Array, w: Array) -> Array:
    filters, taps = np.ascontiguousarray(w.reshape(problem.g, -1).T), list(_taps(problem))
    y = np.zeros((problem.n, problem.do, problem.ho, problem.wo, problem.g), x.dtype)
    for image, pixels in enumerate(_padded_pixels(problem, x)):  # one at a time, which caches can hold
        for index, (d, h, width) in taps:
            y[image] += pixels[d, h, width] * filters[index]
    return y


def _depthwise_bwd_data(problem: ConvProblem, dy: Array, w: Array) -> Array:
    padded = np.zeros((problem.n, *_padded_sizes(problem), problem.g), dy.dtype)
    filters, taps = np.ascontiguousarray(w.reshape(problem.g, -1).T), list(_taps(problem))
    gradients = dy.reshape(problem.n, problem.do, problem.ho, problem.wo, problem.g)
    for pixels, gradient in zip(padded, gradients, strict=True):
        for index, (d, h, width) in taps:
            pixels[d, h, width] += gradient * filters[index]
    inside: Array = padded[_inside(problem, 1)]
    return inside


def _depthwise_bwd_weight(problem: ConvProblem, dy: Array, x: Array) -> Array:
    taps, sums = list(_taps(problem)), np.zeros((prod(_sizes(problem)[1]), problem.g), dy.dtype)
    gradients = dy.reshape(problem.n, problem.do, problem.ho, problem.wo, problem.g)
    for pixels, gradient in zip(_padded_pixels(problem, x), gradients, strict=True):
        for index, (d, h, width) in taps:
            sums[index] += (pixels[d, h, width] * gradient).reshape(-1, problem.g).sum(axis=0)
    return np.ascontiguousarray(sums.T)


# General, and for one channel of each side per group.
_COMPUTED: dict[Direction, tuple[Callable[[ConvProblem, Array, Array], Array], ...]] = {
    Direction.FORWARD: (_forward, _depthwise_forward),
    Direction.BWD_DATA: (_bwd_data, _depthwise_bwd_data),
    Direction.BWD_WEIGHT: (_bwd_weight, _depthwise_bwd_weight),
}
