"""AMD's coverage lists, compared with the same lists defined by conditions instead of grids."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.problem_sets import problem_set
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# N, G, C, K, height, width, filter, stride, padding.
Shape = tuple[int, int, int, int, int, int, int, int, int]
NARROW = {(64, 64), (128, 128), (64, 128)}
PRIMES = {p for p in range(7, 48) if all(p % d for d in range(2, p))} - {43}
UNEVEN = {6, 10, 12, 18, 24, 36, 48, 60, 75, 96}
POWERS = [2**i for i in range(3, 13)]


def _shapes(name: str) -> list[Shape]:
    result = []
    for p in problem_set(name):
        assert (p.y, p.stride_h, p.pad_h, p.dilation_h) == (p.x, p.stride_w, p.pad_w, p.dilation_w)
        assert (p.ndim, p.dilation_h) == (2, 1)
        result.append((p.n, p.g, p.c, p.k, p.hi, p.wi, p.y, p.stride_h, p.pad_h))
    return result


def _is_wide(shape: Shape) -> bool:
    n, g, c, k, size, width, taps, stride, pad = shape
    plain, few = stride == 1 and taps in {1, 3}, n in {1, 4}
    if size != width or pad != taps // 2 or stride > 2:
        return False
    if g > 1:
        return plain and c == k and c // g in {16, 32, 64} and size in {14, 28, 56} and n in {1, 4, 8}
    low, high, doubled = min(c, k), max(c, k), k == 2 * c and c >= 64
    return any(
        (
            plain and size in {8, 16, 32, 64, 128} and low >= 64 and high <= 512 and n in {1, 4, 16},
            plain and size in {4, 7, 8, 14, 16} and low >= 512 and high <= 1024 and n in {1, 8, 32},
            plain and size in {56, 112, 224} and low >= 64 and high <= 128 and n in {1, 4, 8},
            plain and size in {8, 14, 28, 56} and high == 4 * low and 64 <= low <= 128 and n in {1, 4, 16},
            plain and size in {8, 14, 28, 56} and (low, high) == (256, 1024) and n in {1, 4, 16},
            stride == 2 and taps in {1, 3} and size in {28, 56, 112} and doubled and c <= 256 and n in {1, 4, 8},
            (taps, stride) in {(5, 1), (7, 1), (7, 2)} and size in {16, 32, 56} and (c, k) in NARROW and few,
            plain and size in PRIMES and (c, k) in NARROW and few,
            plain and taps == 1 and size in {1, 4, 8} and low >= 64 and n in {1, 8},
            plain and size in {7, 14, 28} and doubled and c <= 512 and n in {1, 2},
            plain and taps == 3 and size in {8, 14, 28} and c == k and 64 <= c <= 256 and n in {64, 128},
            plain and size in UNEVEN and (c, k) in NARROW and few,
        )
    )


def _is_edge(shape: Shape) -> bool:
    n, g, c, k, size, width, taps, stride, pad = shape
    if g > 1 or min(c, k) < 8 or max(c, k) > 512:
        return False
    if size != width:
        oblong = sorted((size, width)) in ([1, 28], [4, 112], [7, 56], [3, 48])
        return (
            oblong and c == k and c in {64, 128} and n in {1, 4} and stride == 1 and taps in {1, 3} and pad == taps // 2
        )
    whole_input = taps == size and pad == 0 and taps in {1, 3, 5, 7} and stride == n == 1
    if whole_input and min(c, k) >= 64 and max(c, k) <= 256:
        return True
    if taps not in {1, 3} or pad != taps // 2:
        return False
    if stride > 1:
        return stride in {3, 4} and size in {12, 16, 24, 32, 48} and (c, k) in NARROW and n in {1, 4}
    fits = taps == 1 or size >= 3
    corners = {8, 16, 64, 128}
    return any(
        (
            n == 1 and size in {4, 7, 8, 14, 16, 28},
            8 in {c, k} and max(c, k) <= 256 and size in {4, 7, 14, 28, 56} and n in {1, 4},
            fits and size <= 7 and {c, k} <= corners and n in {1, 4},
            8 <= size <= 16 and max(c, k) <= 32 and n in {1, 2},
            fits and c == k == 8 and (size <= 8 or size in {14, 28}) and n in {1, 2, 4},
        )
    )


def _candidates(sizes: list[tuple[int, int]]) -> Iterator[Shape]:
    dense = ((1, c, k) for c, k in product(POWERS, POWERS))
    grouped = ((g, c, c) for g in (2, 4, 8) for c in POWERS if c // g >= 8)
    forms = [(taps, stride, pad) for taps in (1, 3, 5, 7) for stride in (1, 2, 3, 4) for pad in {0, taps // 2}]
    for (g, c, k), (size, width), form in product([*dense, *grouped], sizes, forms):
        for n in (1, 2, 4, 8, 16, 32, 64, 128):
            yield n, g, c, k, size, width, *form


SQUARE = [
    (size, size) for size in (*range(1, 25), 28, 29, 31, 32, 36, 37, 41, 47, 48, 56, 60, 64, 75, 96, 112, 128, 224)
]
OBLONG = [(1, 28), (28, 1), (4, 112), (112, 4), (7, 56), (56, 7), (3, 48), (48, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "belongs", "count"), [("wide", _is_wide, 1631), ("edge", _is_edge, 1514)])
def test_the_grids_match_their_conditions(name: str, belongs: Callable[[Shape], bool], count: int) -> None:
    """A list has exactly the shapes of its conditions, in the order of AMD's columns, N, G, C, K and so on."""
    shapes = _shapes(name)
    assert set(shapes) == {shape for shape in _candidates([*SQUARE, *OBLONG]) if belongs(shape)}
    assert len(shapes) == count
    assert shapes == sorted(shapes)


def _forward(
    n: int, c: int, k: int, size: tuple[int, int], taps: int, stride: int, pad: int, g: int = 1
) -> ConvProblem:
    return ConvProblem(Direction.FORWARD, n, c, k, g, *size, taps, taps, stride, stride, pad, pad)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("wide", _forward(16, 512, 512, (128, 128), 3, 1, 1)),
        ("wide", _forward(32, 1024, 512, (7, 7), 1, 1, 0)),
        ("wide", _forward(4, 1024, 256, (56, 56), 3, 1, 1)),
        ("wide", _forward(8, 256, 512, (112, 112), 1, 2, 0)),
        ("wide", _forward(4, 64, 128, (56, 56), 7, 2, 3)),
        ("wide", _forward(1, 64, 64, (47, 47), 3, 1, 1)),
        ("wide", _forward(8, 4096, 2048, (1, 1), 1, 1, 0)),
        ("wide", _forward(8, 512, 512, (56, 56), 3, 1, 1, g=8)),
        ("wide", _forward(4, 128, 128, (75, 75), 1, 1, 0)),
        ("edge", _forward(1, 512, 8, (28, 28), 3, 1, 1)),
        ("edge", _forward(1, 256, 64, (7, 7), 7, 1, 0)),
        ("edge", _forward(4, 64, 128, (48, 48), 3, 4, 1)),
        ("edge", _forward(4, 128, 128, (1, 28), 3, 1, 1)),
        ("edge", _forward(2, 8, 8, (1, 1), 1, 1, 0)),
    ],
)
def test_shapes_of_the_sources_are_included(name: str, problem: ConvProblem) -> None:
    """Shapes named in AMD's loops are in the list."""
    assert problem in problem_set(name)


@pytest.mark.parametrize("name", ["wide", "edge"])
def test_channels_of_a_group_are_multiples_of_eight(name: str) -> None:
    """AMD drops all other shapes, including every depthwise layer."""
    assert all((p.c // p.g) % 8 == (p.k // p.g) % 8 == 0 for p in problem_set(name))
