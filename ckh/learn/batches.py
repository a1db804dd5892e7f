"""Scoring many problems at once: those together that have the same candidates."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.learn.artifact import wanted_for
from ckh.learn.calibration import FIRST
from ckh.learn.ranked import in_order
from ckh.learn.reach import are_beyond
from ckh.ranking.evaluator import best_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.kernels.pools import Candidates
    from ckh.learn.artifact import Model
    from ckh.learn.ranked import Ranked
    from ckh.ops.base import Kernel, Problem

# So many problems that have the same candidates, few of their pool, are worth a pool of these alone.
_MANY_ALIKE = 200
_FEW_OF_POOL = 2 / 3


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of problems that have the same candidates.

    Attributes:
        model: what scored them.
        problems: the problems.
        pool: kernels among which they decide.
        chosen: the candidates, as numbers in the pool; shape (candidates,).
        score: what they are ordered by; shape (problems, candidates).
        tflops: what the model expects, if it does; shape (problems, candidates).
        is_beyond: which problems lie too far outside of the training data for that; shape (problems,).
        unmeasured: as of `Candidates`.
    """

    model: Model
    problems: list[Problem]
    pool: tuple[Kernel, ...]
    chosen: NDArray[np.intp]
    score: NDArray[np.float64]
    tflops: NDArray[np.float64] | None
    is_beyond: NDArray[np.bool_]
    unmeasured: str = ""

    def order(self, top: int | None) -> NDArray[np.intp]:
        """Of each problem the first candidates, best first, as numbers in `chosen`; shape (problems, top)."""
        return best_first(self.score, top)

    def best(self, top: int | None) -> Iterator[list[Ranked]]:
        """Of each problem the first candidates, best first."""
        is_joined = self.tflops is not None and self.model.calibration is not None
        order = self.order(max(top, FIRST) if is_joined and top is not None else top)
        rows = np.arange(len(order))[:, None]
        score = self.score[rows, order]
        tflops = self.model.speeds(score, None if self.tflops is None else self.tflops[rows, order])
        kernels = self.chosen[order[:, :top]]
        for row, (problem, is_beyond) in enumerate(zip(self.problems, self.is_beyond.tolist(), strict=True)):
            expected = None if tflops is None or is_beyond else tflops[row, :top]
            yield in_order(problem, self.pool, kernels[row], score[row, :top], expected)


def scored(problems: Sequence[Problem], model: Model, *, tflops: bool = True) -> Iterator[Scored]:
    """All problems, those together that have the same candidates.

    Raises:
        UsageError: the model is for something else.
        ModelError: a file of the model is damaged.
    """
    pools: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    known: list[Candidates[Kernel]] = []
    for kind in {wanted_for(problem, model.spec.arch) for problem in problems}:
        model.require(kind)
    for index, problem in enumerate(problems):
        found = known_candidates(problem, model)
        known.append(found)
        pools[id(found.pool)][id(found.chosen)].append(index)
    for classes in pools.values():
        shared: list[list[int]] = []
        for members in classes.values():
            one = known[members[0]]
            if len(members) >= _MANY_ALIKE and len(one.chosen) <= _FEW_OF_POOL * len(one.pool):
                yield from _score([members], problems, [model.alone(one)], model, tflops=tflops)
            else:
                shared.append(members)
        if shared:
            yield from _score(shared, problems, [known[one[0]] for one in shared], model, tflops=tflops)


def _score(
    classes: Sequence[Sequence[int]],
    problems: Sequence[Problem],
    candidates: Sequence[Candidates[Kernel]],
    model: Model,
    *,
    tflops: bool,
) -> Iterator[Scored]:
    """Score problems of one pool, by their numbers, class by class of those that have the same candidates of it."""
    some = [problems[index] for members in classes for index in members]
    pool = candidates[0].pool
    score, speed = model.score_pool(some, pool, tflops=tflops) if pool else (np.zeros((len(some), 0)), None)
    far = are_beyond(some, model.reach if speed is not None else {})
    start = 0
    for members, one in zip(classes, candidates, strict=True):
        part = slice(start, start + len(members))
        start += len(members)
        columns = slice(None) if len(one.chosen) == len(pool) else one.chosen
        expected = None if speed is None else speed[part][:, columns]
        columns_of = score[part][:, columns], expected, far[part]
        yield Scored(model, some[part], pool, one.chosen, *columns_of, one.unmeasured)


def known_candidates(problem: Problem, model: Model) -> Candidates[Kernel]:
    """The candidates of a problem, which the model remembers; problems with the same ones share the array of them."""
    key = model.spec.op.candidates_key(problem)
    known = model.candidates.get(key)
    if known is None:
        found = model.spec.op.candidates(problem, load_arch(model.spec.arch), model.path)
        found = found if model.only is None else found.among(model.only)
        known = replace(found, chosen=model.same(found).chosen)
        model.candidates.put(key, known)
    return known
