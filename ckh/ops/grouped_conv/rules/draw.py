"""Drawing some kernels out of many so that every kind of them is there; by rule, never at random.

Every function keeps the order of the kernels it is given; they may be of several directions, dtypes and dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain, zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.kernel import ConvKernel

if TYPE_CHECKING:
    from collections.abc import Iterable

Kernels = tuple[ConvKernel, ...]
Key = Callable[[ConvKernel], Hashable]

_STEP = 5
_LEAST = 10

# A kernel is of the first category whose option it has.
_CATEGORIES: tuple[tuple[str, Callable[[ConvKernel], bool]], ...] = (
    ("streamk", lambda kernel: kernel.streamk is not None),
    ("split_image", lambda kernel: kernel.split_image),
    ("merged_groups", lambda kernel: kernel.num_groups_to_merge > 1),
    ("two_stage", lambda kernel: kernel.two_stage),
    ("explicit_gemm", lambda kernel: kernel.explicit_gemm is True),
    ("regular", lambda _kernel: True),
)


def category(kernel: ConvKernel) -> str:
    """The kind of a kernel by its options: "streamk", "two_stage" and so on, or "regular"."""
    return next(name for name, is_member in _CATEGORIES if is_member(kernel))


def first_of_each(kernels: Iterable[ConvKernel], *keys: Key) -> Kernels:
    """The kernels that are, for at least one of the keys, the first with their value of it."""
    seen: set[tuple[int, Hashable]] = set()
    drawn = []
    for kernel in kernels:
        values = {(number, key(kernel)) for number, key in enumerate(keys)}
        if not values <= seen:
            drawn.append(kernel)
            seen |= values
    return tuple(drawn)


def every_fifth(kernels: Kernels) -> Kernels:
    """The fifth, tenth and so on of each category and dtype, and what these leave out of any pipeline.

    A category of less than five is there with its first kernel. A pipeline with a scheduler that is in none of those
    for a direction and dtype is there with its first kernel too.
    """
    groups = _grouped(kernels, lambda kernel: (category(kernel), kernel.dtype))
    drawn = set(chain.from_iterable(group[_STEP - 1 :: _STEP] or group[:1] for group in groups))
    pipeline: Key = attrgetter("variant", "dtype", "pipeline", "scheduler")
    covered = {pipeline(kernel) for kernel in drawn}
    drawn.update(kernel for kernel in first_of_each(kernels, pipeline) if pipeline(kernel) not in covered)
    return tuple(kernel for kernel in kernels if kernel in drawn)


def smallest(kernels: Kernels) -> Kernels:
    """The first kernel of each category, dtype and number of dimensions; then their second and so on up to ten."""
    groups = _grouped(kernels, lambda kernel: (category(kernel), kernel.dtype, kernel.ndim_spatial))
    in_turn = [kernel for turn in zip_longest(*groups) for kernel in turn if kernel is not None]
    drawn = set(in_turn[: max(_LEAST, len(groups))])
    return tuple(kernel for kernel in kernels if kernel in drawn)


def _grouped(kernels: Kernels, key: Key) -> list[Kernels]:
    groups: dict[Hashable, list[ConvKernel]] = {}
    for kernel in kernels:
        groups.setdefault(key(kernel), []).append(kernel)
    return [tuple(group) for group in groups.values()]
