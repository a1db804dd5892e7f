"""The rule sets by name, and their kernels.

`full` is every combination of the curated tables; all sets but `default` are drawn from its kernels that the
architecture can build, so that each is a subset of it. AMD reads `profiler` and `tests` from lists of instances; here
they are covering sets of similar size over the same choices.

Sets are drawn deterministically, never at random, so that every kind of kernel is represented. Every function keeps the
order of the given kernels; they may be of several directions, dtypes and dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, lru_cache
from itertools import chain, zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.kernels.lists import RuleSets
from ckh.kernels.table import TRIPLES, KernelTable
from ckh.ops.grouped_conv.kernel import ConvKernel
from ckh.ops.grouped_conv.kernels.pool import POOLS, conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS, not_2d_or_3d
from ckh.ops.grouped_conv.rules.full import OPTIONS, full_candidates
from ckh.problems import Direction
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import RefusedKernel

Kernels = tuple[ConvKernel, ...]
Key = Callable[[ConvKernel], Hashable]

_STEP = 5
_LEAST = 10

# A kernel belongs to the first category whose option it has.
_CATEGORIES: tuple[tuple[str, Callable[[ConvKernel], bool]], ...] = (
    ("streamk", lambda kernel: kernel.streamk is not None),
    ("split_image", lambda kernel: kernel.split_image),
    ("merged_groups", lambda kernel: kernel.num_groups_to_merge > 1),
    ("two_stage", lambda kernel: kernel.two_stage),
    ("explicit_gemm", lambda kernel: kernel.explicit_gemm is True),
    ("regular", lambda _kernel: True),
)


def category(kernel: ConvKernel) -> str:
    """Return the category of a kernel by its options: "streamk", "two_stage" and so on, or "regular"."""
    return next(name for name, is_member in _CATEGORIES if is_member(kernel))


def first_of_each(kernels: Iterable[ConvKernel], *keys: Key) -> Kernels:
    """Return the kernels that are, for at least one of the keys, the first with their value of it."""
    seen: set[tuple[int, Hashable]] = set()
    drawn = []
    for kernel in kernels:
        values = {(number, key(kernel)) for number, key in enumerate(keys)}
        if not values <= seen:
            drawn.append(kernel)
            seen |= values
    return tuple(drawn)


def every_fifth(kernels: Kernels) -> Kernels:
    """Return every fifth kernel of each category and dtype, and the first kernel of pipelines that these omit.

    A category of fewer than five kernels is represented by its first kernel, as is a pipeline with a scheduler that is
    otherwise absent for a direction and dtype.
    """
    groups = _grouped(kernels, lambda kernel: (category(kernel), kernel.dtype))
    drawn = set(chain.from_iterable(group[_STEP - 1 :: _STEP] or group[:1] for group in groups))
    pipeline: Key = attrgetter("variant", "dtype", "pipeline", "scheduler")
    covered = {pipeline(kernel) for kernel in drawn}
    drawn.update(kernel for kernel in first_of_each(kernels, pipeline) if pipeline(kernel) not in covered)
    return tuple(kernel for kernel in kernels if kernel in drawn)


def smallest(kernels: Kernels) -> Kernels:
    """Return the first kernel of each category, dtype and number of dimensions; then the second and so on up to ten."""
    groups = _grouped(kernels, lambda kernel: (category(kernel), kernel.dtype, kernel.ndim_spatial))
    in_turn = [kernel for turn in zip_longest(*groups) for kernel in turn if kernel is not None]
    drawn = set(in_turn[: max(_LEAST, len(groups))])
    return tuple(kernel for kernel in kernels if kernel in drawn)


def _grouped(kernels: Kernels, key: Key) -> list[Kernels]:
    groups: dict[Hashable, list[ConvKernel]] = {}
    for kernel in kernels:
        groups.setdefault(key(kernel), []).append(kernel)
    return [tuple(group) for group in groups.values()]


DEFAULT_RULE_SET, FULL_RULE_SET = "default", "full"

_TILE, _VECTORS = TRIPLES["tile"], TRIPLES["vectors"]
_PIPELINE = ("pipeline", "scheduler")
_SPECIALIZATION = ("specialization",)


def _covering(*choices: tuple[str, ...]) -> Callable[[Kernels], Kernels]:
    """Return a function that draws a kernel for each combination of values, within each of the groups of fields."""
    keys: tuple[Key, ...] = tuple(attrgetter(*names) for names in choices)
    return lambda kernels: first_of_each(kernels, *keys)


# How the sets are drawn from the full one; `default` is not.
RULE_SETS: dict[str, Callable[[Kernels], Kernels] | None] = {
    DEFAULT_RULE_SET: None,  # the candidates that models rank: ten tiles, thirty pipeline variants
    "tiny": lambda full: smallest(every_fifth(full)),
    "tests": _covering(_TILE, _SPECIALIZATION, _PIPELINE + OPTIONS),  # each of them once
    "full-tests": every_fifth,
    "profiler": _covering(_TILE + _VECTORS + _SPECIALIZATION, _TILE + _PIPELINE, _PIPELINE + OPTIONS),
    FULL_RULE_SET: lambda full: full,
}


def rule_set(name: str, variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec) -> Kernels:
    """Return the kernels of a rule set that the architecture can build, in table order.

    There are none for a dtype that the architecture or the tables do not have.
    """
    draw = _find(name, ndim_spatial)
    if draw is None:
        return conv_pool(variant, arch, ndim_spatial, dtype)
    return draw(_judged(variant, ndim_spatial, dtype, arch)[0])


def refused_of_rule_set(
    name: str, variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec
) -> tuple[RefusedKernel[ConvKernel], ...]:
    """Return the kernels excluded from `rule_set` because the architecture cannot build them, with the reasons.

    For a set drawn from the full set, these are the rejected kernels of the full set.
    """
    if _find(name, ndim_spatial) is None:
        return tuple(POOLS.refused(arch, variant, ndim_spatial, dtype))
    return _judged(variant, ndim_spatial, dtype, arch)[1]


def weight_options(ndim_spatial: int, dtype: str, arch: ArchSpec) -> Kernels:
    """Return bwd_weight kernels with two stages, merged groups or both: one per tile and pipeline of the full set."""
    full, _ = _judged(Direction.BWD_WEIGHT, ndim_spatial, dtype, arch)
    has_some = (kernel for kernel in full if kernel.two_stage or kernel.num_groups_to_merge > 1)
    plain = (kernel for kernel in has_some if not kernel.explicit_gemm and kernel.streamk is None)
    return first_of_each(plain, attrgetter(*_TILE, *_PIPELINE, "num_groups_to_merge", "two_stage"))


@cache
def _judged(
    variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec
) -> tuple[Kernels, tuple[RefusedKernel[ConvKernel], ...]]:
    """Return the kernels of the full set that the architecture can build, and the rejected ones."""
    table = KernelTable.of(ConvKernel, full_candidates(variant, ndim_spatial, dtype, arch))
    built = CONV_RULES.judge(table, arch).passed.tolist()
    return tuple(table[number] for number in built), tuple(CONV_RULES.refused(table, arch))


def _find(name: str, ndim_spatial: int) -> Callable[[Kernels], Kernels] | None:
    if name not in RULE_SETS:
        raise UsageError(f"unknown rule set {name!r}", one_of(name, RULE_SETS), code="unknown-name")
    if ndim_spatial not in CONV_LAYOUTS:
        raise not_2d_or_3d(ndim_spatial)
    return RULE_SETS[name]


_drawn = lru_cache(maxsize=64)(rule_set)  # computing the full rule set takes a second


SETS_OF_CONV = RuleSets(
    tuple(RULE_SETS), lambda name, problem, arch: _drawn(name, problem.variant, problem.ndim, problem.dtype, arch)
)
