"""AMD's published problems: families of training problems, coverage lists, training and validation lists.

Families. Sources: `{forward,bwd_data,bwd_weight}_synthetic_extended` of Composable Kernel's tile engine. A family is a
grid per direction. AMD's lists repeat problems (1,886, 1,650 and 2,225 entries); `family` yields them as often, this
package keeps each once. Decisions of ckh: bwd_weight's 3D problems are bwd_data's with the direction replaced, as in
AMD's `bwd_weight_3d`, and its further dilated grid (AMD's section 11) belongs to `dilated`. Padding is "same":
dilation * (filter - 1) / 2.

Coverage lists of forward convolutions, as tables of grids: `wide`, and the `edge` cases. Sources:
`generate_wide_coverage_conv.py` and `generate_edge_dims_conv.py` of Composable Kernel's dispatcher. Both order their
problems as here. AMD keeps only problems with multiples of 8 channels per group: that drops all depthwise layers of its
wide list, which therefore have no grid here. The third generator, `generate_targeted_shapes_conv.py`, has no list of
its own: it adds problems on which a model was measured to be inaccurate.

Lists of training and validation problems as AMD publishes them, including hold-out layers. Sources, in the tile engine
of Composable Kernel: `forward_training` with `forward_training_miopen`, `validation_holdout`, and
`{bwd_data,bwd_weight}_test_validation`. `amd_validation.csv` has the 300 entries of the validation list in order.
`amd_miopen_shapes.csv` has 299 of 300 shapes from MIOpen: one has a 3x3 filter on an unpadded 1x1 input, which is
invalid. Both repeat a few problems. Their synthetic part is the families above. The two files: Copyright (c) Advanced
Micro Devices, Inc., MIT licence.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.problem_sets.files import read_problems
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# C, K and G of each combination.
Channels = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A square (3D: cubic) filter; `stride_d` applies in 3D only. `padding` None is "same"."""

    taps: int
    stride: int = 1
    dilation: int = 1
    stride_d: int = 1
    padding: int | None = None

    @property
    def pad(self) -> int:
        """Padding on each side."""
        return self.dilation * (self.taps - 1) // 2 if self.padding is None else self.padding


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of depths (None: 2D), sizes (a pair: height, width), (C, K, G), batches and filters."""

    sizes: tuple[int | tuple[int, int], ...]
    channels: Channels
    batches: tuple[int, ...]
    filters: tuple[Filter, ...]
    depths: tuple[int | None, ...] = (None,)

    def problems(self) -> Iterator[ConvProblem]:
        """The grid's problems, forward and fp32."""
        axes = (self.depths, self.sizes, self.channels, self.batches, self.filters)
        for depth, size, (c, k, g), n, taps in product(*axes):
            yield _problem(depth, size if isinstance(size, tuple) else (size, size), (n, c, k, g), taps)


def _problem(depth: int | None, size: tuple[int, int], ncgk: tuple[int, int, int, int], filter_: Filter) -> ConvProblem:
    n, c, k, g = ncgk
    taps, stride, pad, dilation = filter_.taps, filter_.stride, filter_.pad, filter_.dilation
    plane = ConvProblem(Direction.FORWARD, n, c, k, g, *size, taps, taps, stride, stride, pad, pad, dilation, dilation)
    if depth is None:
        return plane
    sizes = plane.to_dict() | {"ndim": 3, "di": depth, "z": taps, "layout": ""}
    return ConvProblem(**sizes | {"stride_d": filter_.stride_d, "pad_d": pad, "dilation_d": dilation})


def crossed(cs: Iterable[int], ks: Iterable[int]) -> Channels:
    """Every C with every K, in one group."""
    return tuple((c, k, 1) for c, k in product(cs, ks))


def pairs(*channels: tuple[int, int]) -> Channels:
    """The given (C, K) pairs, in one group."""
    return tuple((c, k, 1) for c, k in channels)


def equal(*cs: int) -> Channels:
    """K equal to C, in one group."""
    return tuple((c, c, 1) for c in cs)


def groups(per_group: tuple[int, ...]) -> Channels:
    """K equal to C in each of 2, 4 and 8 groups."""
    return tuple((c * g, c * g, g) for g, c in product((2, 4, 8), per_group))


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
    """Yield AMD's problems of one family for a direction, with duplicates, as forward fp32 problems."""
    for grid in FAMILIES[name][variant]:
        yield from grid.problems()


_POINT, _THREE = Filter(1), Filter(3)
_NARROW = pairs((64, 64), (128, 128), (64, 128))
_FROM_8 = (8, 16, 32, 64, 128, 256)
_LANGUAGE_MODELS = (*_UP_TO_512, 1024, 2048, 4096)
_PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 47)
_UNEVEN = (6, 10, 12, 18, 24, 36, 48, 60, 75, 96)
_RESHAPING = pairs((64, 256), (128, 512), (256, 64), (512, 128), (256, 1024), (1024, 256))
_OBLONG = ((1, 28), (28, 1), (4, 112), (112, 4), (7, 56), (56, 7), (3, 48), (48, 3))

WIDE: tuple[Grid, ...] = (
    Grid((8, 16, 32, 64, 128), crossed(_UP_TO_512, _UP_TO_512), (1, 4, 16), _BOTH),
    Grid((4, 7, 8, 14, 16), crossed((512, 1024), (512, 1024)), (1, 8, 32), _BOTH),
    Grid((56, 112, 224), crossed((64, 128), (64, 128)), (1, 4, 8), _BOTH),
    Grid((8, 14, 28, 56), _RESHAPING, (1, 4, 16), _BOTH),
    Grid((28, 56, 112), _DOUBLING, (1, 4, 8), (Filter(3, stride=2), Filter(1, stride=2))),
    Grid((16, 32, 56), _NARROW, (1, 4), (Filter(5), Filter(7), Filter(7, stride=2))),
    Grid(_PRIMES, _NARROW, (1, 4), _BOTH),
    Grid((1, 4, 8), crossed(_LANGUAGE_MODELS, _LANGUAGE_MODELS), (1, 8), (_POINT,)),
    Grid((14, 28, 56), groups((16, 32, 64)), (1, 4, 8), _BOTH),
    Grid((7, 14, 28), (*_DOUBLING, (512, 1024, 1)), (1, 2), _BOTH),
    Grid((8, 14, 28), equal(64, 128, 256), (64, 128), (_THREE,)),
    Grid(_UNEVEN, _NARROW, (1, 4), _BOTH),
)
EDGE: tuple[Grid, ...] = (
    Grid((4, 7, 8, 14, 16, 28), crossed((*_FROM_8, 512), (*_FROM_8, 512)), (1,), _BOTH),
    Grid((4, 7, 14, 28, 56), (*crossed(_FROM_8, (8,)), *crossed((8,), _FROM_8)), (1, 4), _BOTH),
    Grid((1, 2, 3, 4, 5, 6, 7), crossed((8, 16, 64, 128), (8, 16, 64, 128)), (1, 4), (_POINT,)),
    Grid((3, 4, 5, 6, 7), crossed((8, 16, 64, 128), (8, 16, 64, 128)), (1, 4), (_THREE,)),
    Grid(tuple(range(8, 17)), crossed((8, 16, 32), (8, 16, 32)), (1, 2), _BOTH),
    # The filter covers the whole input.
    *(
        Grid((taps,), crossed((64, 128, 256), (64, 128, 256)), (1,), (Filter(taps, padding=0),))
        for taps in (1, 3, 5, 7)
    ),
    Grid((12, 16, 24, 32, 48), _NARROW, (1, 4), tuple(Filter(taps, stride) for taps in (1, 3) for stride in (3, 4))),
    Grid(_OBLONG, equal(64, 128), (1, 4), _BOTH),
    Grid((*range(1, 9), 14, 28), equal(8), (1, 2, 4), (_POINT,)),
    Grid((*range(3, 9), 14, 28), equal(8), (1, 2, 4), (_THREE,)),
)


def ordered(grids: Iterable[Grid]) -> tuple[ConvProblem, ...]:
    """Return the distinct problems of grids in AMD's order: by N, G, C, K, input and filter; forward and fp32."""
    return tuple(sorted({problem for grid in grids for problem in grid.problems()}, key=_amd_order))


def _amd_order(problem: ConvProblem) -> tuple[int, ...]:
    p = problem
    return (p.n, p.g, p.c, p.k, p.hi, p.wi, p.y, p.x, p.stride_h, p.stride_w, p.pad_h, p.pad_w)


VALIDATION_FILE = Path(__file__).with_name("amd_validation.csv")
MIOPEN_FILE = Path(__file__).with_name("amd_miopen_shapes.csv")

# N, C, K, height and width, filter. AMD has the same ten problems for both backward directions.
_BACKWARD_VALIDATION = (
    (4, 64, 128, 32, 3),
    (8, 256, 64, 14, 1),
    (16, 128, 128, 28, 3),
    (8, 512, 256, 7, 3),
    (32, 64, 64, 56, 3),
    (16, 512, 256, 14, 1),
    (4, 32, 64, 112, 3),
    (8, 128, 256, 32, 3),
    (2, 64, 64, 28, 3),
    (16, 256, 128, 14, 3),
)


def training(variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's training problems of a direction, with duplicates, as forward fp32; forward: MIOpen's first."""
    if variant is Direction.FORWARD:
        yield from read_problems(MIOPEN_FILE)
    for name in FAMILIES:
        yield from family(name, variant)


def validation(variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's validation problems of a direction, as forward fp32 problems."""
    if variant is Direction.FORWARD:
        yield from read_problems(VALIDATION_FILE)
        return
    for n, c, k, size, taps in _BACKWARD_VALIDATION:
        yield from Grid((size,), ((c, k, 1),), (n,), (Filter(taps),)).problems()
