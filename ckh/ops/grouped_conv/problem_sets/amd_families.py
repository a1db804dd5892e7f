"""The families of AMD's published training problems, as tables of grids.

Sources: `{forward,bwd_data,bwd_weight}_synthetic_extended` of Composable Kernel's tile engine. A family is a grid per
direction. AMD's lists repeat problems (1,886, 1,650 and 2,225 entries); `family` yields them as often as they do,
this package keeps each once. Where we chose: bwd_weight's 3D problems are bwd_data's with the direction
replaced, as in AMD's `bwd_weight_3d`, and its further dilated grid (their section 11) belongs to `dilated`. The
paddings are "same": dilation * (filter - 1) / 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem_sets.grids import Channels, Filter, Grid, crossed, equal, groups, pairs
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.grouped_conv.problem import ConvProblem


def _all(cs: tuple[int, ...], ks: tuple[int, ...]) -> Channels:
    return tuple((c, k, g) for c, k, g in crossed(cs, ks) if min(c, k) < _TOO_LARGE)


_TOO_LARGE = 1024
_POINT, _THREE = Filter(1), Filter(3)
_BOTH = (_POINT, _THREE)
_STEM = (Filter(7, stride=2),)
_UP_TO_512 = (64, 128, 256, 512)
_UP_TO_1024 = (64, 128, 256, 512, 1024)
_DOUBLING = pairs((64, 128), (128, 256), (256, 512))
_FIVE = (*_DOUBLING, *equal(128, 256))
_ASYMMETRIC = pairs((64, 256), (128, 512), (256, 64), (256, 128), (512, 256))
_TINY = pairs((64, 128), (128, 256), (256, 512), (512, 1024))
_DEPTHWISE = tuple((c, c, c) for c in _UP_TO_512)
_DOWN = (Filter(3, stride=2),)
_F, _D, _W = Direction.FORWARD, Direction.BWD_DATA, Direction.BWD_WEIGHT

_DILATED = Grid((14, 28, 56), _FIVE, (1, 4, 8, 16), tuple(Filter(3, dilation=dilation) for dilation in (2, 4, 6)))
_DILATED_MORE = Grid((7, 32, 112), equal(64, 128, 256), (2, 8), (Filter(3, dilation=2), Filter(3, dilation=4)))
_VOLUME = Grid((28, 56), pairs((64, 128), (128, 256), (128, 128)), (1, 2, 4, 8), (_THREE, _POINT), depths=(8, 16, 32))
_VOLUME_DOWN = Grid((28, 56), pairs((64, 128), (128, 256)), (1, 2, 4), (Filter(3, stride_d=2),), depths=(16, 32))


def _large(cs: tuple[int, ...], ks: tuple[int, ...]) -> tuple[Grid, Grid]:
    narrow = tuple(c for c in cs if c <= 128)  # noqa: PLR2004 - AMD's limit for 7x7
    batches = (1, 2, 4, 8)
    return Grid((112,), _all(cs, ks), batches, (_THREE,)), Grid((112,), _all(narrow, ks), batches, _STEM)


FAMILIES: dict[str, dict[Direction, tuple[Grid, ...]]] = {
    "small": {
        _F: (Grid((8, 16), _all(_UP_TO_1024, _UP_TO_1024), (1, 4, 8, 16, 32), _BOTH),),
        _D: (Grid((7, 14), _all((256, 512, 1024), _UP_TO_1024), (1, 4, 8, 16, 32), _BOTH),),
        _W: (Grid((7, 14), _all(_UP_TO_1024, _UP_TO_1024), (1, 2, 4, 8, 16, 32), _BOTH),),
    },
    "medium": {
        _F: (Grid((28, 32, 56), _all(_UP_TO_512, _UP_TO_512), (2, 4, 8, 16, 32), _BOTH),),
        _D: (Grid((28, 32, 56), _all(_UP_TO_512, _UP_TO_512), (2, 4, 8, 16, 32), _BOTH),),
        _W: (Grid((28, 32, 56), _all((32, *_UP_TO_512), _UP_TO_512), (1, 2, 4, 8, 16, 32), _BOTH),),
    },
    "large": {
        _F: _large((64, 128, 256), (64, 128, 256)),
        _D: _large((32, 64, 128, 256), (64, 128, 256)),
        _W: _large((16, 32, 64, 128, 256), (32, 64, 128, 256)),
    },
    "asymmetric": {
        _F: (Grid((16, 28, 56), _ASYMMETRIC, (4, 8, 16), _BOTH),),
        _D: (Grid((14, 28, 56), _ASYMMETRIC, (4, 8, 16), _BOTH),),
        _W: (Grid((14, 28, 56), (*_ASYMMETRIC, (256, 1024, 1)), (4, 8, 16, 32), _BOTH),),
    },
    "tiny-batch": {
        _F: (Grid((8, 16, 28, 56), _TINY, (1, 2), (_POINT,)),),
        _D: (Grid((7, 14, 28, 56), _TINY, (1, 2), (_POINT,)),),
        _W: (Grid((7, 14, 28, 56), _TINY, (1, 2), (_POINT,)),),
    },
    "big-batch": {
        _F: (Grid((16, 28), equal(64, 128, 256), (64, 128), (_THREE,)),),
        _D: (Grid((14, 28), equal(64, 128, 256), (64, 128), (_THREE,)),),
        _W: (Grid((7, 14, 28), equal(64, 128, 256, 512), (64, 128), (_THREE, _POINT)),),
    },
    "grouped": {
        _F: (Grid((16, 28, 56), groups((8, 16, 32, 64)), (1, 4, 8, 16), (_THREE, _POINT)),),
        _D: (Grid((14, 28, 56), groups((64, 128, 256)), (1, 4, 8, 16), (_THREE, _POINT)),),
        _W: (Grid((14, 28, 56), groups((64, 128, 256)), (1, 4, 8, 16), (_THREE, _POINT)),),
    },
    "depthwise": {
        _F: (Grid((16, 28, 56, 112), _DEPTHWISE, (1, 4, 8), (_THREE,)),),
        _D: (Grid((14, 28, 56, 112), _DEPTHWISE, (1, 4, 8), (_THREE,)),),
        _W: (Grid((14, 28, 56, 112), _DEPTHWISE, (1, 4, 8), (_THREE,)),),
    },
    "strided": {
        _F: (Grid((56, 112), _DOUBLING, (1, 4, 8, 16), (*_DOWN, Filter(1, stride=2))),),
        _D: (Grid((28, 56, 112), _FIVE, (1, 4, 8, 16), _DOWN),),
        _W: (Grid((14, 28, 56), _all((64, 128, 256), (128, 256, 512)), (4, 8, 16), _DOWN),),
    },
    "dilated": {_F: (_DILATED,), _D: (_DILATED,), _W: (_DILATED, _DILATED_MORE)},
    "3d-dense": {_F: (_VOLUME,), _D: (_VOLUME,), _W: (_VOLUME,)},
    "3d-strided": {_F: (_VOLUME_DOWN,), _D: (_VOLUME_DOWN,), _W: (_VOLUME_DOWN,)},
}


def family(name: str, variant: Direction) -> Iterator[ConvProblem]:
    """AMD's problems of one family for a direction, with their repetitions, as forward fp32 problems."""
    for grid in FAMILIES[name][variant]:
        yield from grid.problems()
