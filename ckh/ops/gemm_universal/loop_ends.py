"""Small products that take a kernel through every end of its loops: what is executed to believe that it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.gemm_universal.problem import GemmProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.gemm_universal.kernel import GemmKernel

MOST_STEPS = 6  # along K; no pipeline has more stages than this many less one
_RAGGED = 16  # elements beside whole tiles: what every vector width of pools divides
_PARTS = (2, 3)  # of K


def loop_end_problems(kernel: GemmKernel) -> tuple[GemmProblem, ...]:
    """The problems; a kernel may refuse some of them, as those that are no multiples of what it does not pad."""
    return tuple(dict.fromkeys(_problems(kernel)))


def _problems(kernel: GemmKernel) -> Iterator[GemmProblem]:
    m, n, k = kernel.tile
    for steps in range(1, MOST_STEPS + 1):
        yield _product(kernel, m, n, steps * k)
    yield _product(kernel, 2 * m, 2 * n, 2 * k)
    yield _product(kernel, m + _RAGGED, n, k)
    yield _product(kernel, m, n + _RAGGED, 2 * k)
    yield _product(kernel, m, n, 2 * k + _RAGGED)
    yield _product(kernel, m + _RAGGED, n + _RAGGED, 3 * k + _RAGGED)
    for parts in _PARTS:
        yield _product(kernel, m, n, 4 * parts * k, parts)


def _product(kernel: GemmKernel, m: int, n: int, k: int, split_k: int = 1) -> GemmProblem:
    return GemmProblem(m, n, k, kernel.dtype, kernel.layout, split_k)
