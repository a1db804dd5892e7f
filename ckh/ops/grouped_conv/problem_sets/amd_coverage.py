"""AMD's coverage lists of forward convolutions, as tables of grids: `wide`, and the `edge` cases.

Sources: `generate_wide_coverage_conv.py` and `generate_edge_dims_conv.py` of Composable Kernel's dispatcher. Both order
their problems as here. AMD keeps only problems with multiples of 8 channels per group: that drops all depthwise
layers of its wide list, which therefore has no grid here. The third generator, `generate_targeted_shapes_conv.py`,
has no list of its own: it fills in what a model was measured to be bad at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem_sets.grids import Filter, Grid, crossed, equal, groups, pairs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.ops.grouped_conv.problem import ConvProblem

_POINT, _THREE = Filter(1), Filter(3)
_BOTH = (_POINT, _THREE)
_NARROW = pairs((64, 64), (128, 128), (64, 128))
_DOUBLING = pairs((64, 128), (128, 256), (256, 512))
_UP_TO_512 = (64, 128, 256, 512)
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
    """The distinct problems of grids in AMD's order, which goes by N, G, C, K, input and filter; forward and fp32."""
    return tuple(sorted({problem for grid in grids for problem in grid.problems()}, key=_amd_order))


def _amd_order(problem: ConvProblem) -> tuple[int, ...]:
    p = problem
    return (p.n, p.g, p.c, p.k, p.hi, p.wi, p.y, p.x, p.stride_h, p.stride_w, p.pad_h, p.pad_w)
