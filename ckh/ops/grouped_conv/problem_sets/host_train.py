"""The training set for one CPU thread: drawn at random, with a fixed seed, around the sizes of real layers.

Each family draws sizes from pools (channel counts and image sizes of networks, and uneven ones) until the work is near
a target; a family's targets are evenly distributed over its range, denser towards its upper end, so that cheap and
expensive problems are covered alike. Layers of hold-out networks are excluded, at every batch size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.errors import UsageError
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.problem_sets.holdout import layers_at_batch_1
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED = 20_240_229
MFLOP = (0.5, 250.0)
MAX_BYTES = 64_000_000

_T = TypeVar("_T")
_NEAR = 1.3  # maximum factor between work and its target
_TRIES = 20_000
_STEM_TAPS = 7

_CHANNELS = (
    *(8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 60, 64, 72, 80, 88, 96, 112, 116, 120, 128, 144, 160, 176, 184, 192),
    *(200, 224, 232, 240, 256, 288, 320, 336, 352, 384, 416, 448, 480, 512, 544, 576, 640, 672, 720, 768, 832, 896),
    *(960, 1024, 1056, 1152, 1280, 1344, 1536, 1792, 1920, 2048),
)
# The sizes of most real layers (224 halved repeatedly) occur more often.
_SIZES = (
    *(7, 14, 28, 56, 112) * 4,
    *(1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16, 17, 18, 19, 20, 24, 26, 27, 28, 30, 32, 32, 35),
    *(36, 38, 40, 44, 48, 52, 55, 56, 60, 64, 71, 75, 80, 96, 104, 112, 128, 149, 150, 160, 192, 224),
)
# Stems read whole images.
_PHOTOS = (32, 64, 96, 112, 128, 144, 150, 160, 176, 192, 200, 208, 224, 224)
_BATCHES = (*(1,) * 11, *(2, 2, 3), *(4,) * 3, *(8, 8), 16)


@dataclass(frozen=True, slots=True)
class LayerFamily:
    """Number of problems of a family, their range of work in MFLOP, and how a problem is drawn."""

    count: int
    mflop: tuple[float, float]
    draw: Callable[[Random], ConvProblem]
    skew: float = 0.5  # exponent on evenly spaced targets; below 1 is denser at the upper end


def _pick(rng: Random, items: Sequence[_T]) -> _T:
    return items[int(rng.random() * len(items))]  # Random.random is the method whose sequence Python keeps reproducible


def _image(rng: Random, sizes: Sequence[int]) -> tuple[int, int]:
    height = _pick(rng, sizes)
    return height, height if rng.random() < 0.85 else _pick(rng, sizes)  # noqa: PLR2004 - most images are square


def _plane(
    rng: Random,
    channels: tuple[int, int, int],
    taps: tuple[int, int],
    stride: int,
    dilation: int = 1,
    images: Sequence[int] = _SIZES,
) -> ConvProblem:
    """Draw a 2D problem with (C, K, G); usually with "same" padding, sometimes without."""
    padded = rng.random() < 0.9 and stride < max(taps)  # noqa: PLR2004 - patches (stride = filter) have no padding
    pads = tuple(dilation * (t - 1) // 2 if padded else 0 for t in taps)
    (c, k, g), (hi, wi), (y, x), (pad_h, pad_w) = channels, _image(rng, images), taps, pads
    n = _pick(rng, _BATCHES)
    return ConvProblem(Direction.FORWARD, n, c, k, g, hi, wi, y, x, stride, stride, pad_h, pad_w, dilation, dilation)


def _dense(rng: Random) -> tuple[int, int, int]:
    return _pick(rng, _CHANNELS), _pick(rng, _CHANNELS), 1


def _pointwise(rng: Random) -> ConvProblem:
    return _plane(rng, _dense(rng), (1, 1), 2 if rng.random() < 0.1 else 1)  # noqa: PLR2004 - shortcuts are strided


def _square(rng: Random) -> ConvProblem:
    return _plane(rng, _dense(rng), (3, 3), 1)


def _strided(rng: Random) -> ConvProblem:
    taps, stride = _pick(rng, (((3, 3), 2), ((3, 3), 2), ((2, 2), 2), ((5, 5), 2), ((4, 4), 4)))
    return _plane(rng, _dense(rng), taps, stride)


def _dilated(rng: Random) -> ConvProblem:
    return _plane(rng, _dense(rng), (3, 3), 1, _pick(rng, (2, 3, 4, 6)))


def _wide(rng: Random) -> ConvProblem:
    shapes = ((5, 5), (5, 5), (7, 7), (1, 7), (7, 1), (1, 7), (7, 1), (1, 3), (3, 1), (2, 2))
    return _plane(rng, _dense(rng), _pick(rng, shapes), 1)


def _grouped(rng: Random) -> ConvProblem:
    groups, width = _pick(rng, (2, 4, 8, 16, 32, 32)), _pick(rng, (4, 8, 12, 16, 24, 32))
    k = groups * width * _pick(rng, (1, 1, 1, 2))
    taps = _pick(rng, ((3, 3), (3, 3), (3, 3), (1, 1), (5, 5)))
    return _plane(rng, (groups * width, k, groups), taps, _pick(rng, (1, 1, 1, 2)))


def _depthwise(rng: Random) -> ConvProblem:
    channels, taps = _pick(rng, _CHANNELS), _pick(rng, (3, 3, 3, 3, 5, 5, 5, 7, 7))
    return _plane(rng, (channels,) * 3, (taps, taps), _pick(rng, (1, 1, 1, 2)))


def _stem(rng: Random) -> ConvProblem:
    taps, stride = _pick(rng, ((7, 2), (3, 2), (3, 2), (3, 1), (4, 4), (5, 2), (7, 4)))
    k = _pick(rng, tuple(c for c in _CHANNELS if c <= 128))  # noqa: PLR2004 - a stem's outputs are few
    return _plane(rng, (_pick(rng, (3, 3, 3, 1, 4)), k, 1), (taps, taps), stride, images=_PHOTOS)


def _volume(rng: Random) -> ConvProblem:
    shapes = ((3, 3, 3),) * 5 + ((1, 1, 1),) * 2 + ((1, 3, 3),) * 2 + ((3, 1, 1),) * 2 + ((3, 7, 7), (1, 7, 7))
    taps = _pick(rng, shapes)
    c, k, g = _dense(rng)
    if max(taps) == _STEM_TAPS:
        c = 3
    elif rng.random() < 0.1:  # noqa: PLR2004 - some are depthwise
        k = g = c
    steps = _pick(rng, ((1, 1, 1), (1, 1, 1), (1, 1, 1), (2, 2, 2), (1, 2, 2), (2, 1, 1)))
    strides = [min(s, t) if max(taps) > 1 else s for s, t in zip(steps, taps, strict=True)]
    size = _pick(rng, (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 56))
    n, depth = _pick(rng, _BATCHES), _pick(rng, (1, 2, 3, 4, 6, 8, 10, 12, 16))
    z, y, x = taps
    depth = max(depth, 2 if z == 1 else 1)  # one frame and a filter without depth would be a 2D problem
    sizes: dict[str, Any] = {"di": depth, "z": z}
    sizes |= {f"pad_{axis}": t // 2 for axis, t in zip("dhw", taps, strict=True)}
    sizes |= {f"stride_{axis}": s for axis, s in zip("dhw", strides, strict=True)}
    return ConvProblem(Direction.FORWARD, n, c, k, g, size, size, y, x, ndim=3, **sizes)


FAMILIES: dict[str, LayerFamily] = {
    "1x1": LayerFamily(120, MFLOP, _pointwise),
    "3x3": LayerFamily(64, MFLOP, _square, skew=0.4),
    "strided": LayerFamily(18, MFLOP, _strided),
    "dilated": LayerFamily(10, MFLOP, _dilated),
    "wide": LayerFamily(34, MFLOP, _wide),
    "grouped": LayerFamily(36, (MFLOP[0], 120.0), _grouped),
    "depthwise": LayerFamily(78, (MFLOP[0], 60.0), _depthwise, skew=1.0),
    "stem": LayerFamily(14, (2.0, MFLOP[1]), _stem),
    "3d": LayerFamily(58, MFLOP, _volume),
}


@cache
def host_train() -> tuple[ConvProblem, ...]:
    """Return the set, forward and fp32, in the order of `FAMILIES` and of the targets."""
    rng = Random(SEED)
    layers = frozenset(layers_at_batch_1())
    taken: dict[ConvProblem, None] = {}
    for family in FAMILIES.values():
        low, high = family.mflop
        for index in range(family.count):
            share = ((index + 0.5) / family.count) ** family.skew
            target = 1e6 * low * (high / low) ** share
            taken[_near(rng, family, target, lambda p: p not in taken and replace(p, n=1) not in layers)] = None
    return tuple(taken)


def _near(rng: Random, family: LayerFamily, flops: float, free: Callable[[ConvProblem], bool]) -> ConvProblem:
    low, high = (1e6 * limit for limit in family.mflop)
    low, high = max(low, flops / _NEAR), min(high, flops * _NEAR)
    for _ in range(_TRIES):
        try:
            problem = family.draw(rng)
        except UsageError:  # the filter does not fit the drawn image
            continue
        if low <= problem.flops <= high and problem.bytes < MAX_BYTES and free(problem):
            return problem
    raise AssertionError(f"no problem near {flops:.0f} FLOP in {_TRIES} draws")
