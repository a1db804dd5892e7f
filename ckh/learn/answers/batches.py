"""Batched scoring of many problems, grouped by candidates."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ckh.archs import load_arch
from ckh.kernels.table import KernelTable
from ckh.learn.answers.answer_rows import rows_of, tied
from ckh.learn.answers.ranked import first_orders, ranked_kernels
from ckh.learn.models.artifact import wanted_for
from ckh.learn.models.calibration import FIRST
from ckh.learn.models.reach import are_beyond
from ckh.ranking.evaluator import best_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.kernels.pools import Candidates
    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem

# With this many problems of equal candidates, and few of their pool, a pool of these candidates alone pays off.
_MANY_ALIKE = 200
_FEW_OF_POOL = 2 / 3
_MOST_SCORES = 1 << 24  # maximum computed together: for the largest pools, with 100,000 kernels, 160 problems
_TOGETHER = 64  # problems evaluated together by the trees
_FEW_SPEEDS = 16  # up to this many kernels of a problem, speeds are computed for these alone


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """First candidates of problems that share their candidates: those of the first rows, or all."""

    problems: list[Problem]
    padded: list[Problem | None]
    pool: Sequence[Kernel]
    order: NDArray[np.intp] | list[NDArray[np.intp]]
    score: NDArray[np.float64] | list[NDArray[np.float64]]
    tflops: NDArray[np.float64] | None
    is_beyond: NDArray[np.bool_]
    candidates: int
    unmeasured: str
    ties: list[list[tuple[int, int]]] | None = None  # rows as of `tied`, whose first kernels have the last speeds

    def expected(self, row: int) -> NDArray[np.float64] | None:
        """Predicted TFLOPS of the candidates of a problem, shape (first,), if any."""
        return None if self.tflops is None or self.is_beyond[row] else self.tflops[row]

    def best(self, top: int | None, doubts: Callable[[Problem], NotMeasured | None]) -> Iterator[list[Ranked[Any]]]:
        """First rows of each problem, best first, or all candidates, with the caveats of the problems."""
        for row, problem in enumerate(self.problems):
            order, score, tflops = self.order[row], self.score[row].data, self.expected(row)
            speeds: Any = None if tflops is None else tflops.data
            ties = tied(score) if top is None else None if self.ties is None else self.ties[row]
            if self.ties is not None and ties and tflops is not None:
                own = tflops[[0, *range(len(tflops) - len(ties) + 1, len(tflops))]]
                speeds = {begin: speed for (begin, _), speed in zip(ties, own.tolist(), strict=True)}
            elif self.ties is None and top is not None:
                order, score = order[:top], score[:top]
            flops = (self.padded[row] or problem).flops
            rows = rows_of(order, score, speeds, flops, ties, is_each=top is None)
            yield ranked_kernels(self.pool, rows, self.padded[row], doubts(problem))


def neighbours(problems: Sequence[Problem], place: Callable[[Problem], list[float]]) -> list[Problem]:
    """Order problems by locality, so that problems evaluated together take similar paths through trees.

    Bisects along the longest side of the bounding box until a part is evaluated together.
    """
    if len(problems) <= _TOGETHER:
        return list(problems)
    points, parts = np.array([place(problem) for problem in problems]), [np.arange(len(problems))]
    while max(map(len, parts)) > _TOGETHER:
        parts = [half for part in parts for half in _halves(points, part)]
    return [problems[index] for part in parts for index in part.tolist()]


def _halves(points: NDArray[np.float64], part: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    if len(part) <= _TOGETHER:
        return [part]
    side = np.ptp(points[part], axis=0).argmax()
    ordered = part[np.argsort(points[part, side], kind="stable")]
    middle = -(-len(part) // (2 * _TOGETHER)) * _TOGETHER
    return [ordered[:middle], ordered[middle:]]


def scored(
    problems: Sequence[Problem], model: Model, *, top: int | None = None, tflops: bool = True
) -> Iterator[Scored]:
    """Score all problems, grouped by candidates."""
    pools: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    known: list[Candidates[Kernel]] = []
    for kind in {wanted_for(problem, model.spec.arch) for problem in problems}:
        model.require(kind)
    run = list(problems)
    for index, problem in enumerate(problems):
        run[index], candidates = runnable(problem, model)
        known.append(candidates)
        pools[id(candidates.pool)][id(candidates.chosen)].append(index)
    for classes in pools.values():
        shared: list[list[int]] = []
        for members in classes.values():
            candidates = known[members[0]]
            if len(members) >= _MANY_ALIKE and len(candidates.chosen) <= _FEW_OF_POOL * len(candidates.pool):
                yield from _score([members], problems, run, [model.alone(candidates)], model, top, tflops=tflops)
            else:
                shared.append(members)
        if shared:
            by_class = [known[index] for index, *_ in shared]
            yield from _score(shared, problems, run, by_class, model, top, tflops=tflops)


def _score(
    classes: Sequence[Sequence[int]],
    problems: Sequence[Problem],
    run: Sequence[Problem],
    by_class: Sequence[Candidates[Kernel]],
    model: Model,
    top: int | None,
    *,
    tflops: bool,
) -> Iterator[Scored]:
    """Score problems of a pool, by index, grouped by equal candidates."""
    pool = by_class[0].pool
    most = max(1, _MOST_SCORES // max(len(pool), 1))
    for members, candidates in zip(classes, by_class, strict=True) if not pool else ():
        yield _nothing([problems[index] for index in members], candidates)
    if pool and sum(map(len, classes)) <= most:
        yield from _score_together(classes, problems, run, by_class, model, top, tflops=tflops)
    elif pool:
        for members, candidates in zip(classes, by_class, strict=True):
            for start in range(0, len(members), most):
                part = [members[start : start + most]]
                yield from _score_together(part, problems, run, [candidates], model, top, tflops=tflops)


def _score_together(
    classes: Sequence[Sequence[int]],
    problems: Sequence[Problem],
    run: Sequence[Problem],
    by_class: Sequence[Candidates[Kernel]],
    model: Model,
    top: int | None,
    *,
    tflops: bool,
) -> Iterator[Scored]:
    """`_score` for a non-empty pool whose scores fit in memory."""
    numbers, pool = [index for members in classes for index in members], by_class[0].pool
    requested, to_run = ([of[index] for index in numbers] for of in (problems, run))
    padded = [run_as if run_as is not own else None for own, run_as in zip(requested, to_run, strict=True)]
    has_speeds = tflops and model.predicts_speeds
    first = top if top is None or not has_speeds or model.calibration is None else max(top, FIRST)
    is_alone = has_speeds and first is not None and first <= _FEW_SPEEDS
    score, speeds = model.score_pool(to_run, pool, tflops=has_speeds and not is_alone)
    ends = np.cumsum([len(members) for members in classes])
    classes_of: list[_Ordered] = []
    for candidates, end, of_class in zip(by_class, ends.tolist(), np.split(score, ends[:-1]), strict=True):
        if model.estimate is not None and not model.is_estimate and len(candidates.chosen):
            model.estimate.veto(of_class, to_run[end - len(of_class) : end], pool, candidates.chosen)
        own = of_class if len(candidates.chosen) == len(pool) else of_class[:, candidates.chosen]
        classes_of.append(_ordered(own, candidates.chosen, top, first))
    places = np.zeros((len(to_run), max(ordered.places.shape[1] for ordered in classes_of)), np.intp)
    for end, ordered in zip(ends.tolist(), classes_of, strict=True):
        places[end - len(ordered.places) : end, : ordered.places.shape[1]] = ordered.places
    score = score[np.arange(len(to_run))[:, None], places]
    if speeds is not None:
        speeds = speeds[np.arange(len(to_run))[:, None], places]
    elif is_alone:
        speeds = model.speeds_of(to_run, pool, places)
    far = are_beyond(to_run, model.reach if has_speeds else {})
    for candidates, end, ordered in zip(by_class, ends.tolist(), classes_of, strict=True):
        part = slice(end - len(ordered.places), end), slice(ordered.places.shape[1])
        of_class = score[part]
        expected = model.speeds(of_class, speeds[part] if speeds is not None else None, to_run[part[0]])
        order, values = (ordered.places, of_class) if ordered.whole is None else ordered.whole
        given = expected, far[part[0]], len(candidates.chosen), candidates.unmeasured, ordered.ties
        yield Scored(requested[part[0]], padded[part[0]], pool, order, values, *given)


class _Ordered(NamedTuple):
    """The first candidates of problems with the same candidates, by index in the pool."""

    places: NDArray[np.intp]  # shape (problems, some); with ties, the first kernel of each row at the end
    whole: tuple[list[NDArray[np.intp]], list[NDArray[np.float64]]] | None = None  # with ties: order and scores
    ties: list[list[tuple[int, int]]] | None = None


def _ordered(score: NDArray[np.float64], chosen: NDArray[np.intp], top: int | None, first: int | None) -> _Ordered:
    """Order the candidates: all, or those of the first rows."""
    if top is None or first is None:
        return _Ordered(chosen[best_first(score)])
    orders = first_orders(score, top, first)
    if isinstance(orders, np.ndarray):
        return _Ordered(chosen[orders])
    scores = [of_problem[order] for of_problem, order in zip(score, orders, strict=True)]
    ties = [tied(of_problem.data, top=top) for of_problem in scores]
    lead, most = min(first, score.shape[1]), max(map(len, ties))
    places = [
        [*order[:lead], *order[:1].repeat(most - len(rows)), *order[[begin for begin, _ in rows]]]
        for order, rows in zip(orders, ties, strict=True)
    ]
    whole = [chosen[order] for order in orders], scores
    return _Ordered(chosen[np.array(places, np.intp)], whole, ties)


def _nothing(problems: list[Problem], candidates: Candidates[Kernel]) -> Scored:
    """Result of problems whose pool has no kernel."""
    nothing = np.zeros((len(problems), 0))
    empty = [*nothing.astype(np.intp)], [*nothing], None, np.zeros(len(problems), np.bool_)
    return Scored(problems, [None] * len(problems), candidates.pool, *empty, 0, candidates.unmeasured)


def runnable(problem: Problem, model: Model) -> tuple[Problem, Candidates[Kernel]]:
    """Return the problem to run and its candidates: the problem, or the padded problem if no kernel applies."""
    candidates = known_candidates(problem, model)
    if not len(candidates.chosen) and (padded := model.spec.op.padded(problem)) != problem:
        of_padded = known_candidates(padded, model)
        if len(of_padded.chosen):
            return padded, of_padded
    return problem, candidates


def known_candidates(problem: Problem, model: Model) -> Candidates[Kernel]:
    """Candidates of a problem, cached by the model and shared between problems.

    Reasons in `refused` may name sizes of another problem: use `own_candidates` for the problem's own.
    """
    key = model.spec.op.kernels.key_of(problem)
    known = model.candidates.get(key)
    if known is None:
        candidates = own_candidates(problem, model)
        known = replace(candidates, chosen=model.same(candidates).chosen)
        model.candidates.put(key, known)
    return known


def own_candidates(problem: Problem, model: Model) -> Candidates[Kernel]:
    """Candidates of a problem, with reasons that name its own sizes."""
    op, arch, only = model.spec.op, load_arch(model.spec.arch), model.only
    if only is not None and op.kernels.listed is not None:
        return op.kernels.listed(problem, arch, model.candidates_of, only)
    candidates = op.kernels.candidates(problem, arch, model.candidates_of)
    return candidates if only is None else candidates.among(frozenset(only.kernels))


class PooledScores:
    """A model's scores of kernels given by index.

    Preparing a pool takes longer than scoring. So the pool holds the kernels of all problems scored so far, and grows
    when a problem has others.
    """

    def __init__(self, model: Model, kernels: Sequence[Kernel]) -> None:
        self._model = model
        self._kernels = KernelTable.of(model.spec.op.kernels.type, kernels)  # whose columns are read many times
        self._numbers = np.empty(0, dtype=np.int64)
        self._pool: Sequence[Kernel] = ()

    def __call__(self, problem: Problem, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score kernels on a problem, shape (numbers,), higher is faster."""
        if not np.isin(numbers, self._numbers).all():
            self._numbers = np.union1d(self._numbers, numbers)
            self._pool = self._kernels.take(self._numbers)
        scores: NDArray[np.float64] = self._model.score_pool([problem], self._pool, tflops=False)[0][0]
        return scores[np.searchsorted(self._numbers, numbers)]
