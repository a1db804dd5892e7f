"""Exhaustive search with a model: score every kernel that can be built and applies, and return the best."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import NoKernelError
from ckh.learn.answers.batches import known_candidates
from ckh.learn.answers.caveats import known_by
from ckh.learn.answers.ranked import Ranked, in_order
from ckh.learn.answers.ranking import facts_of, unmeasured_families
from ckh.learn.models.artifact import wanted_for
from ckh.learn.models.calibration import FIRST
from ckh.learn.models.reach import beyond
from ckh.ranking.axes import coded, keys
from ckh.ranking.evaluator import best_first
from ckh.search.kernels.space import product_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.table import KernelTable
    from ckh.learn.answers.known import Known
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem
    from ckh.search.kernels.product import Product

_PREPARED = 8  # cached spaces


@dataclass(frozen=True, slots=True, eq=False)
class ModelSearch:
    """Result of a search by a model."""

    legal: int
    candidates: int
    distinct: int
    found: tuple[Ranked, ...]
    in_pool: tuple[bool, ...]
    first_choice: Ranked | None
    beyond: str
    known: Known


@dataclass(frozen=True, slots=True, eq=False)
class _Scorable:
    """A product in the form that a model scores."""

    product: Product
    groups: NDArray[np.intp]
    table: KernelTable[Any]
    kind: NDArray[np.intp]


def search_model(problem: Problem, model: Model, arch: ArchSpec, top: int) -> ModelSearch:
    """Find the fastest kernels predicted by a model among all that can be built and apply."""
    space = _scorable(product_of(problem, arch), model)
    model.require(wanted_for(problem, model.spec.arch))
    candidates = model.spec.op.kernels.candidates(problem, arch, model.candidates_of).kernels
    product = space.product
    bases, rows = product.numbers_of(candidates)
    # Measured kernels can lie outside of the space.
    candidates = tuple(kernel for kernel, base in zip(candidates, bases.tolist(), strict=True) if base >= 0)
    bases, rows = bases[bases >= 0], rows[bases >= 0]
    legal = product.legal(problem, (bases, rows))
    if not legal.any():
        raise NoKernelError(f"no buildable kernel of {arch.name} applies to {problem.canonical()}")
    count = int(space.groups.max()) + 1
    of_group = np.stack([legal[:, space.groups == group].any(axis=1) for group in range(count)], axis=1).reshape(-1)
    own = np.full(len(of_group), -1, np.intp)  # option set of a candidate
    of_pool = bases * count + space.groups[rows]
    own[of_pool[::-1]] = rows[::-1]
    # Candidates first among ties.
    numbers = np.concatenate([of_pool, np.flatnonzero(of_group)])
    _, first = np.unique(space.kind[numbers], return_index=True)
    numbers = numbers[np.sort(first)]
    score, tflops = model.score_pool([problem], space.table)
    if candidates:  # the estimate in their scores has the registers of those that were compiled here
        score[0, of_pool[::-1]] = model.score_pool([problem], candidates[::-1], tflops=False)[0][0]
    far = beyond(problem, model.reach)
    order = numbers[best_first(score[0, numbers])]
    choices = of_pool[best_first(score[0, of_pool], FIRST)] if len(of_pool) else of_pool
    if tflops is not None:
        # The first candidates determine the predicted speed of the problem, so that a kernel has the same speed as in
        # `ckh predict`.
        both = np.concatenate([choices, order])
        tflops[0, both] = model.speeds(score[0, both], tflops[0, both], [problem])
    tflops = None if far else tflops
    best = order[: None if top is None else max(top, 0)]
    kernels = []
    for number in best.tolist():
        base, group = divmod(number, count)
        row = int(own[number]) if own[number] >= 0 else _first_row(legal[base] & (space.groups == group), product.own)
        kernels.append(product.kernel(base, row))
    result = _ranked(problem, kernels, best, score, tflops)
    first = choices[:1]
    choice = _ranked(problem, [candidates[of_pool.tolist().index(n)] for n in first.tolist()], first, score, tflops)
    return ModelSearch(
        int(np.count_nonzero(legal)),
        len(candidates),
        len(numbers),
        tuple(result),
        tuple((own[best] >= 0).tolist()),
        choice[0] if choice else None,
        far,
        _known(problem, model, kernels),
    )


def _ranked(
    problem: Problem,
    kernels: Sequence[Kernel],
    numbers: NDArray[np.intp],
    score: NDArray[np.float64],
    tflops: NDArray[np.float64] | None,
) -> list[Ranked]:
    """Kernels with their predictions, given by index."""
    speed = None if tflops is None else tflops[0, numbers]
    return in_order(problem, tuple(kernels), np.arange(len(kernels)), score[0, numbers], speed)


@lru_cache(maxsize=_PREPARED)
def _scorable(product: Product, model: Model) -> _Scorable:
    spec = model.spec
    names, rows = product.options.names, product.options.rows
    kernel_table = product.bases.take(np.arange(min(1, len(product.bases)))).crossed(names, rows)
    spec.op.kernels.features(kernel_table, spec.encoding)
    read = [place for place, name in enumerate(names) if name in kernel_table.read]
    numbers: dict[tuple[Any, ...], int] = {}
    groups = np.array([numbers.setdefault(tuple(row[i] for i in read), len(numbers)) for row in rows], np.intp)
    _, first = np.unique(groups, return_index=True)
    table = product.bases.crossed(names, [rows[row] for row in first.tolist()])
    columns = spec.op.kernels.features(table, spec.encoding)
    return _Scorable(product, groups, table, keys([coded(column) for column in columns.values()], len(table)).of)


def _first_row(is_legal: NDArray[np.bool_], own: int) -> int:
    """Index of the first legal option set, the bases' default if that is legal."""
    return own if own >= 0 and is_legal[own] else int(is_legal.argmax())


def _known(problem: Problem, model: Model, kernels: Sequence[Kernel]) -> Known:
    """Out-of-distribution check of a problem, this device, and kernels that may be outside of the pool."""
    facts, unmeasured = facts_of(model, problem)._replace(left_out=()), known_candidates(problem, model).unmeasured
    families = unmeasured_families(model, kernels)
    return known_by(problem, facts, lambda: model.measured, families=families, unmeasured=unmeasured)
