"""AMD's coverage lists of GEMMs, as tables of grids: `wide`, and the `edge` cases.

Sources: `generate_wide_coverage.py` (13 categories) and `generate_edge_dims.py` of Composable Kernel's dispatcher. Both
order their problems as here.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ckh.ops.gemm_universal.problem import GemmProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

    Sizes = tuple[int, ...]
    # All combinations of M, N and K.
    Grid = tuple[Sizes, Sizes, Sizes]


def _cubes(*sizes: int) -> tuple[Grid, ...]:
    return tuple(((size,), (size,), (size,)) for size in sizes)


_ONE, _WIDTH = (1,), (4096,)
_WEIGHTS = (512, 1536, 4096, 7168)
_PRIMES = (17, 31, 37, 127, 251, 509, 1021, 2039, 4093)
_UNEVEN = (48, 96, 192, 384, 576, 768, 1152, 1536, 2304, 3072, 4608, 6144)
_POWERS = tuple(2**i for i in range(14))
_COLUMNS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 7168, 8192)
_FEW = (2, 3, 4, 7, 8, 15, 16)
_SPARSE = (64, 256, 1024, 4096)

WIDE: tuple[Grid, ...] = (
    # One token, then ever more.
    (
        _ONE,
        (512, 1024, 1536, 2048, 3072, 4096, 4608, 7168, 8192, 11008, 14336, 28672),
        (256, 512, 1024, 1536, 2048, 2304, 4096, 7168, 8192),
    ),
    ((2, 4, 8, 16), _WEIGHTS, (256, 1024, 4096, 7168)),
    ((32, 48, 64, 96, 128), (*_WEIGHTS, 8192), (256, 512, 2048, 4096, 7168)),
    ((256, 384, 512, 768, 1024, 1536, 2048), _WEIGHTS, (256, 1024, 2048, 4096, 7168)),
    ((4096, 8192, 12288, 16384, 20480), _WEIGHTS, (256, 1024, 2048, 7168)),
    *_cubes(*(2**i for i in range(5, 14))),
    # Skinny, tall, deep and shallow.
    ((1, 4, 16, 64), (8192, 16384, 28672), (1024, 4096, 8192)),
    ((4096, 8192, 16384), (32, 64, 128, 256), (1024, 4096)),
    ((16, 64, 256), (16, 64, 256), (4096, 8192, 16384, 32768)),
    ((1024, 4096, 8192), (1024, 4096, 8192), (16, 32, 64, 128)),
    *_cubes(*_PRIMES),
    (_PRIMES[:5], _WIDTH, _WIDTH),
    (_WIDTH, _PRIMES[:5], _WIDTH),
    (_WIDTH, _WIDTH, _PRIMES[:5]),
    # Layers of language models: DeepSeek's experts, LLaMA 7B and 70B, attention.
    (_ONE, (512, 576, 1536, 4608), (7168,)),
    (_ONE, (7168,), (256, 2048, 2304)),
    (_ONE, (3072,), (1536,)),
    ((1, 32, 128), _WIDTH, _WIDTH),
    ((1, 32), _WIDTH, (11008,)),
    ((1, 32), (11008,), _WIDTH),
    ((1, 32, 128), (8192,), (8192,)),
    ((1, 32), (8192,), (28672,)),
    (_ONE, (28672,), (8192,)),
    *(((size,), (size,), (64,)) for size in (128, 256, 512, 1024, 2048)),
    *_cubes(128),
    *_cubes(*_UNEVEN),
    (_UNEVEN, _WIDTH, _WIDTH),
)
EDGE: tuple[Grid, ...] = (
    (_POWERS, _ONE, _COLUMNS),
    (_POWERS, _COLUMNS, _ONE),
    (_SPARSE, _FEW, _SPARSE),
    (_SPARSE, _SPARSE, _FEW),
)


def ordered(grids: Iterable[Grid]) -> tuple[GemmProblem, ...]:
    """The distinct problems of grids by M, N and K, fp32 and rcr."""
    return tuple(sorted({GemmProblem(*sizes) for grid in grids for sizes in product(*grid)}))
