"""Random problems, valid and invalid."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_SMALL, _BIG = (1, 2, 3, 4, 5, 7, 8, 13, 16), (24, 31, 32, 48, 64, 96, 100, 128, 192, 256, 512, 1000, 1024, 2048)


def conv_problems(random: Random, count: int, directions: tuple[Direction, ...], dtype: str) -> list[ConvProblem]:
    """Convolutions of all kinds."""
    return _drawn(lambda: _conv(random, random.choice(directions), dtype), count)


def gemm_problems(random: Random, count: int, dtype: str, *, most_split: int = 1) -> list[GemmProblem]:
    """Matrix products of all layouts, half of them with round sizes."""

    def draw() -> GemmProblem:
        sizes = random.choice([_SMALL + _BIG, tuple(range(64, 4097, 64)), tuple(range(1, 300))])
        m, n, k = (random.choice(sizes) for _ in "mnk")
        split_k = random.choice([1, 1, random.randint(1, most_split)])
        return GemmProblem(m, n, k, dtype, random.choice(GEMM_LAYOUTS), split_k)

    return _drawn(draw, count)


def any_conv(random: Random) -> dict[str, Any]:
    """Fields of an often invalid convolution: a few fields of a valid one are changed."""
    item = _drawn(lambda: _conv(random, Direction.FORWARD, "fp32"), 1)[0]
    sizes: dict[str, Any] = {field.name: getattr(item, field.name) for field in fields(item)}
    names = [name for name, value in sizes.items() if isinstance(value, int) and name != "ndim"]
    for name in random.sample(names, random.choice([0, 1, 2])):
        sizes[name] = random.choice([-1, 0, 1, 2, 3, 9, 2**31 - 1, 2**31, 2**40, -(2**62), sizes[name] + 1])
    return sizes


def _conv(random: Random, direction: Direction, dtype: str) -> ConvProblem:
    g = random.choice([1, 1, 1, 2, 4, 32])
    c, k = (g * random.choice(_SMALL + _BIG[:9]) for _ in "ck")
    if random.random() < 0.1:  # depthwise
        g = k = c
    is_3d = random.random() < 0.25
    axes = ("d", "h", "w") if is_3d else ("h", "w")
    steps: dict[str, Any] = {}
    for axis in axes:
        steps[f"stride_{axis}"] = random.choice([1, 1, 2, 3])
        steps[f"pad_{axis}"] = random.choice([0, 0, 1, 1, 2, 3])
        steps[f"dilation_{axis}"] = random.choice([1, 1, 1, 2])
    depth: dict[str, Any] = {"ndim": 3, "di": random.choice(_SMALL), "z": random.choice([1, 2, 3])} if is_3d else {}
    hi, wi = (random.choice([1, 7, 14, 28, 56, 57, 112, 224]) for _ in "hw")
    y, x = random.choice([(1, 1), (3, 3), (3, 3), (5, 5), (7, 7), (1, 7), (2, 3)])
    n = random.choice(_SMALL)
    return ConvProblem(direction, n, c, k, g, hi, wi, y, x, **steps, **depth, dtype=dtype)


def _drawn(draw: Callable[[], Any], count: int) -> list[Any]:
    result: list[Any] = []
    while len(result) < count:
        with suppress(UsageError):
            result.append(draw())
    return result
