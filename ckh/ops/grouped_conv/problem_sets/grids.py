"""Grids of convolutions: all combinations of sizes, channels, batches and filters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# C, K and G of each combination.
Channels = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A square (3D: cubic) filter; `stride_d` counts in 3D only. `padding` None is "same"."""

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
    """As many K as C, in one group."""
    return tuple((c, c, 1) for c in cs)


def groups(per_group: tuple[int, ...]) -> Channels:
    """As many K as C in each of 2, 4 and 8 groups."""
    return tuple((c * g, c * g, g) for g, c in product((2, 4, 8), per_group))
