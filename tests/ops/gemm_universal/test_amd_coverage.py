"""AMD's coverage lists of GEMMs, compared with the same lists defined by conditions instead of grids."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from ckh.ops.gemm_universal.problem_sets import load_problems, problem_set

if TYPE_CHECKING:
    from collections.abc import Callable

Shape = tuple[int, int, int]
PRIMES = {17, 31, 37, 127, 251, 509, 1021, 2039, 4093}
UNEVEN = {f * 2**i for f, powers in ((3, range(4, 12)), (9, range(6, 10))) for i in powers}
POWERS = {2**i for i in range(14)}
WEIGHTS = {512, 1536, 4096, 7168}
# As AMD lists them, by M, N and K.
LANGUAGE_MODELS = {
    *((1, 1536, 7168), (1, 4608, 7168), (1, 7168, 2048), (1, 7168, 2304), (1, 7168, 256), (1, 576, 7168)),
    *((1, 512, 7168), (1, 3072, 1536), (1, 4096, 4096), (32, 4096, 4096), (128, 4096, 4096), (1, 4096, 11008)),
    *((32, 4096, 11008), (1, 11008, 4096), (32, 11008, 4096), (1, 8192, 8192), (32, 8192, 8192), (128, 8192, 8192)),
    *((1, 8192, 28672), (32, 8192, 28672), (1, 28672, 8192), (128, 128, 64), (128, 128, 128), (256, 256, 64)),
    *((512, 512, 64), (1024, 1024, 64), (2048, 2048, 64)),
}
SIZES = sorted(
    {*PRIMES, *UNEVEN, *POWERS, *WEIGHTS, *range(1, 17)}
    | {576, 2304, 4608, 3072, 11008, 12288, 14336, 16384, 20480, 28672, 32768}
)


def _is_wide(shape: Shape) -> bool:
    m, n, k = shape
    return shape in LANGUAGE_MODELS or any(
        (
            m == 1
            and n in {512, 1024, 1536, 2048, 3072, 4096, 4608, 7168, 8192, 11008, 14336, 28672}
            and k in {256, 512, 1024, 1536, 2048, 2304, 4096, 7168, 8192},
            m in {2, 4, 8, 16} and n in WEIGHTS and k in {256, 1024, 4096, 7168},
            m in {32, 48, 64, 96, 128} and n in WEIGHTS | {8192} and k in {256, 512, 2048, 4096, 7168},
            256 <= m <= 2048 and m in POWERS | {384, 768, 1536} and n in WEIGHTS and k in {256, 1024, 2048, 4096, 7168},
            m % 4096 == 0 and m <= 20480 and n in WEIGHTS and k in {256, 1024, 2048, 7168},
            m == n == k and ((32 <= m <= 8192 and m in POWERS) or m in PRIMES | UNEVEN),
            m in {1, 4, 16, 64} and n in {8192, 16384, 28672} and k in {1024, 4096, 8192},
            m in {4096, 8192, 16384} and 32 <= n <= 256 and n in POWERS and k in {1024, 4096},
            {m, n} <= {16, 64, 256} and k in {4096, 8192, 16384, 32768},
            {m, n} <= {1024, 4096, 8192} and k in {16, 32, 64, 128},
            sorted(shape)[1:] == [4096, 4096] and min(shape) in PRIMES and min(shape) < 300,
            n == k == 4096 and m in UNEVEN,
        )
    )


def _is_edge(shape: Shape) -> bool:
    m, n, k = shape
    columns = POWERS - {2, 4, 8} | {7168}
    few, sparse = {2, 3, 4, 7, 8, 15, 16}, {64, 256, 1024, 4096}
    return any(
        (
            m in POWERS and n == 1 and k in columns,
            m in POWERS and k == 1 and n in columns,
            m in sparse and n in few and k in sparse,
            m in sparse and n in sparse and k in few,
        )
    )


@pytest.mark.parametrize(
    # AMD's README gives 706 for the first; the other is 2 x 14 x 12 with N or K of one, 14 with both, 2 x 4 x 7 x 4.
    ("name", "belongs", "count"),
    [("wide", _is_wide, 706), ("edge", _is_edge, 2 * 14 * 12 - 14 + 2 * 4 * 7 * 4)],
)
def test_the_grids_match_their_conditions(name: str, belongs: Callable[[Shape], bool], count: int) -> None:
    """A list has exactly the shapes of its conditions, in the order of M, N and K."""
    shapes = [(p.m, p.n, p.k) for p in problem_set(name)]
    assert set(shapes) == {shape for shape in product(SIZES, SIZES, SIZES) if belongs(shape)}
    assert len(shapes) == count
    assert shapes == sorted(shapes)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("wide", (20480, 7168, 256)),
        ("wide", (1, 576, 7168)),
        ("wide", (4096, 251, 4096)),
        ("wide", (256, 16, 32768)),
        ("edge", (1, 1, 1)),
        ("edge", (8192, 8192, 1)),
        ("edge", (4096, 15, 1024)),
    ],
)
def test_shapes_of_the_sources_are_included(name: str, shape: Shape) -> None:
    """Shapes named in AMD's loops are in the list."""
    assert shape in {(p.m, p.n, p.k) for p in problem_set(name)}


@pytest.mark.parametrize("name", ["wide", "edge"])
def test_lists_have_amds_layout(name: str) -> None:
    """AMD's lists are rcr without split K, whereas ckh's sets cycle through layouts."""
    assert {(p.layout, p.split_k, p.dtype) for p in load_problems(name, None, "fp8")} == {("rcr", 1, "fp8")}
