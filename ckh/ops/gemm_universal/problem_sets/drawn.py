"""Training problems drawn at random with a fixed seed, and AMD's coverage lists of GEMMs.

Each family draws M, N and K until the work is near a target; the targets of a family are evenly spaced, on a
logarithmic scale, over the set's range of work, so that work, aspect ratio and edge cases are covered evenly. No weight
(N, K) of a hold-out model, unsharded or sharded, is ever used, whatever M.

AMD's coverage lists are grids of M, N and K in coverage.json: `wide`, and the `edge` cases. Sources:
`generate_wide_coverage.py` (13 categories) and `generate_edge_dims.py` of Composable Kernel's dispatcher. Both order
their problems as here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar

from ckh.ops.gemm_universal.problem import GemmProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    Sizes = tuple[int, int, int]

SEED = 20_250_311
_T = TypeVar("_T")
_NEAR = 1.6  # maximum factor between work and its target
_TRIES = 100_000

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 23, 31, 37, 61, 67, 97, 127, 131, 251, 257, 509, 521, 1021, 1031, 2039, 4093, 8191)
_HIDDEN = (
    *(256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2560, 2880, 3072, 3584, 4096, 4608),
    *(5120, 5632, 6144, 6656, 6912, 7168, 7680, 8192, 8960, 9216, 10240, 12288, 13824, 14336),
)
_TOKENS = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31)


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Limits of the problems of a set: work in floating-point operations, largest size, bytes (as fp32)."""

    flops: tuple[float, float]
    size: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SizeFamily:
    """A family's share of a set in percent, and how M, N, K and split_k are drawn up to the largest size.

    `reach` is the part of the range of work, on a logarithmic scale, that its problems cover: a thin problem is never
    large.
    """

    percent: int
    draw: Callable[[Random, int], Sizes]
    reach: float = 1.0
    split_k: tuple[int, ...] = (1,)


def _pick(rng: Random, choices: Sequence[_T]) -> _T:
    # Random.random is the method whose sequence Python keeps reproducible.
    return choices[int(rng.random() * len(choices))]


def _spread(rng: Random, most: int, step: int = 1) -> int:
    """Draw a multiple of `step`, uniformly on a logarithmic scale."""
    return step * round(math.exp(rng.random() * math.log(most / step)))


def _square(rng: Random, most: int) -> Sizes:
    size = _spread(rng, most, 4)
    return size, size, size


def _aligned(rng: Random, most: int) -> Sizes:
    step = _pick(rng, (32, 64, 128))
    return _spread(rng, most, step), _spread(rng, most, step), _spread(rng, most, step)


def _skinny(rng: Random, most: int) -> Sizes:
    return _pick(rng, _TOKENS), _spread(rng, 4 * most, 64), _spread(rng, 4 * most, 64)


def _layer(rng: Random, most: int) -> Sizes:
    """Draw tokens times a weight of sizes common in models."""
    return (_spread(rng, most), *_weight(rng))


def _decode(rng: Random, most: int) -> Sizes:
    """Draw a layer with few tokens, as when a language model generates text."""
    return (_spread(rng, most // 64), *_weight(rng))


def _weight(rng: Random) -> tuple[int, int]:
    k = _pick(rng, _HIDDEN)
    return k * _pick(rng, (1, 1, 2, 3, 4)) // _pick(rng, (1, 2, 4, 8, 16)), k


def _deep(rng: Random, most: int) -> Sizes:
    return _spread(rng, most // 8, 8), _spread(rng, most // 8, 8), _spread(rng, 4 * most, 2048)


def _shallow(rng: Random, most: int) -> Sizes:
    return _spread(rng, most, 8), _spread(rng, most, 8), _pick(rng, (8, 16, 24, 32, 48, 64, 80, 96, 128, 192))


def _uneven(rng: Random, most: int) -> Sizes:
    """Draw sizes without common divisors."""
    return _spread(rng, most), _spread(rng, most), _spread(rng, most)


def _prime(rng: Random, most: int) -> Sizes:
    """Draw one or two prime sizes."""
    third = _pick(rng, (_pick(rng, _PRIMES), _spread(rng, 4 * most, 8)))
    return _turned(rng, (_pick(rng, _PRIMES), _spread(rng, 4 * most), third))


def _one(rng: Random, most: int) -> Sizes:
    """Draw one size of 1: a vector times a matrix, a matrix times a vector, or an outer product."""
    return _turned(rng, (1, _spread(rng, 4 * most), _spread(rng, 4 * most)))


def _turned(rng: Random, sizes: Sizes) -> Sizes:
    turn = int(rng.random() * len(sizes))
    m, n, k = sizes[turn:] + sizes[:turn]
    return m, n, k


FAMILIES: dict[str, SizeFamily] = {
    "square": SizeFamily(6, _square),
    "aligned": SizeFamily(10, _aligned),
    "skinny": SizeFamily(16, _skinny, 0.65),
    "layer": SizeFamily(22, _layer),
    "decode": SizeFamily(18, _decode, 0.8),
    "deep": SizeFamily(7, _deep, 0.8),
    "shallow": SizeFamily(5, _shallow, 0.7),
    "uneven": SizeFamily(7, _uneven),
    "prime": SizeFamily(5, _prime, 0.65),
    "one": SizeFamily(4, _one, 0.42),
}
SPLIT_FAMILIES: dict[str, SizeFamily] = {
    **FAMILIES,
    "square": SizeFamily(8, _square),
    "split": SizeFamily(10, _deep, 0.8, (2, 4, 8)),
}


def draw_problems(
    families: dict[str, SizeFamily],
    count: int,
    limits: SizeLimits,
    held_out: Collection[tuple[int, int]],
) -> tuple[GemmProblem, ...]:
    """Draw about `count` distinct problems, fp32 and rcr, ordered by family and work."""
    rng = Random(SEED)
    taken: dict[GemmProblem, None] = {}
    low, high = limits.flops

    def is_free(problem: GemmProblem) -> bool:
        return problem not in taken and (problem.n, problem.k) not in held_out

    for family in families.values():
        members = count * family.percent // 100
        for index in range(members):
            target = low * (high / low) ** (family.reach * (index + 0.5) / members)
            taken[_near(rng, family, target, limits, is_free)] = None
    return tuple(taken)


def _near(
    rng: Random, family: SizeFamily, flops: float, limits: SizeLimits, free: Callable[[GemmProblem], bool]
) -> GemmProblem:
    low, high = max(limits.flops[0], flops / _NEAR), min(limits.flops[1], flops * _NEAR)
    for _ in range(_TRIES):
        m, n, k = family.draw(rng, limits.size)
        if not low <= 2 * m * n * k <= high:
            continue
        problem = GemmProblem(m, n, k, split_k=min(k, _pick(rng, family.split_k)))
        if problem.bytes <= limits.bytes and free(problem):
            return problem
    raise AssertionError(f"no problem near {flops:.3g} FLOP in {_TRIES} draws")


def coverage(name: str) -> tuple[GemmProblem, ...]:
    """Return the distinct problems of one of AMD's coverage lists, ordered by M, N and K, in fp32 and rcr."""
    grids = json.loads(Path(__file__).with_name("coverage.json").read_text(encoding="utf-8"))[name]
    return tuple(sorted({GemmProblem(*sizes) for grid in grids for sizes in product(*grid)}))
