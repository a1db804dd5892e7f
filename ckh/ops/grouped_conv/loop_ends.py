"""Small convolutions that take a kernel through every end of its loops: what is executed to believe that it is right.

Pipelines treat the first and the last steps along K apart, and differ in how many there are; tiles are cut off where M,
N and K are no multiples of them; strides, dilations, paddings and groups change what is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.grouped_conv.kernel import ConvKernel

MOST_STEPS = 6  # along K; no pipeline has more stages than this many less one
_RAGGED = 8  # channels beside whole tiles: what every vector width of pools divides
_CHANNELS = 24
_ROWS, _COLUMNS = 5, 7


def loop_end_problems(kernel: ConvKernel) -> tuple[ConvProblem, ...]:
    """The problems; a kernel may refuse some of them."""
    return tuple(dict.fromkeys(_problems(kernel)))


def _problems(kernel: ConvKernel) -> Iterator[ConvProblem]:
    step = kernel.tile_k * max(1, kernel.split_k or 1)
    for steps in range(1, MOST_STEPS + 1):
        yield _pointwise(kernel, steps * step)
    yield _pointwise(kernel, 2 * step + _RAGGED)
    yield _pointwise(kernel, step, rows=kernel.tile_m // _COLUMNS + 2)
    yield _filtered(kernel, padding=1)
    yield _filtered(kernel, padding=1, stride=2)
    yield _filtered(kernel, padding=2, dilation=2)
    yield _filtered(kernel, padding=1, stride=2, dilation=2, groups=3, batch=2)


def _pointwise(kernel: ConvKernel, depth: int, rows: int = _ROWS) -> ConvProblem:
    """A 1x1 filter, whose GEMM has this depth; its N is one tile and some."""
    across, groups = kernel.tile_n + _RAGGED, max(1, kernel.num_groups_to_merge or 1)
    c, k = {Direction.FORWARD: (depth, across), Direction.BWD_DATA: (across, depth)}.get(
        kernel.variant, (across, _CHANNELS)
    )
    images = 2 if kernel.variant is Direction.BWD_WEIGHT else 1  # whose positions make up the depth there
    if kernel.variant is Direction.BWD_WEIGHT:
        sizes = {"n": images, "hi": 1, "wi": depth // images}
        k = kernel.tile_m // 2 * 3 if rows > _ROWS else _CHANNELS
    else:
        sizes = {"n": 1, "hi": rows, "wi": _COLUMNS}
    return _conv(kernel, c=c * groups, k=k * groups, g=groups, y=1, x=1, **sizes)


def _filtered(kernel: ConvKernel, *, groups: int = 2, batch: int = 1, **moves: int) -> ConvProblem:
    """A 3x3 filter with these strides, dilations and paddings."""
    groups *= max(1, kernel.num_groups_to_merge or 1)
    sizes = {"n": batch, "c": _CHANNELS * groups, "k": (_CHANNELS + _RAGGED) * groups, "g": groups, "hi": 9, "wi": 11}
    stride, dilation, padding = moves.get("stride", 1), moves.get("dilation", 1), moves.get("padding", 0)
    two = {"stride_h": stride, "stride_w": stride, "dilation_h": dilation, "dilation_w": dilation}
    if kernel.ndim_spatial == 3:  # noqa: PLR2004 - dimensions
        two |= {"di": 6, "z": 2, "stride_d": stride, "dilation_d": dilation, "pad_d": padding}
    return _conv(kernel, y=3, x=3, pad_h=padding, pad_w=padding, **sizes, **two)


def _conv(kernel: ConvKernel, **sizes: Any) -> ConvProblem:
    return ConvProblem(kernel.variant, dtype=kernel.dtype, ndim=kernel.ndim_spatial, **sizes)
