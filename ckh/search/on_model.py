"""Searching with a model alone: what it is asked of a proposal stands for a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.search.kernels.space import look_alikes
from ckh.search.objective import as_time, log_speeds
from ckh.search.run import run
from ckh.search.strategies import make_strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.learn.artifact import Model
    from ckh.learn.ranked import Ranked
    from ckh.ops.base import Problem
    from ckh.search.kernels import KernelSpace

_STARTS = 5


@dataclass(frozen=True, slots=True, eq=False)
class ModelSearch:
    """What a search found.

    Attributes:
        distinct: kernels of the space that the model can tell apart, which is what was searched.
        evaluations: how many of them the model was asked about.
        found: these, best first; of kernels that it cannot tell apart, the first.
    """

    distinct: int
    evaluations: int
    found: list[Ranked]


def search_model(
    space: KernelSpace,
    problem: Problem,
    model: Model,
    pool: list[Ranked],
    strategy: str,
    seed: int,
    budget: int,
    advance: Callable[[int, str], None],
) -> ModelSearch:
    """Find the kernels that a model expects to be the fastest.

    Args:
        space: what is searched.
        problem: what is to be computed.
        model: what is asked.
        pool: the ranked candidates of the pool; the search starts from the best of them.
        strategy: name of the strategy.
        seed: of all randomness.
        budget: how many kernels the model is asked about at most.
        advance: told of each.

    Raises:
        UsageError: there is no such strategy.
        ModelError: a file of the model is damaged.
    """
    distinct = space.of(look_alikes(space.kernels, model).first)
    number = {kernel: i for i, kernel in enumerate(distinct.kernels)}
    starts = [number[one.kernel] for one in pool if one.kernel in number][:_STARTS]
    log_speed: dict[int, float] = {}

    def evaluate(index: int) -> float:
        log_speed[index] = float(log_speeds(model, problem, [distinct.kernels[index]])[0])
        advance(1, "")
        return as_time(log_speed[index])

    result = run(make_strategy(strategy, distinct.space, seed, None, starts), evaluate, budget)
    asked = np.array([step.index for step in result.trace])
    return ModelSearch(len(distinct), len(asked), model.rank(problem, [distinct.kernels[i] for i in np.sort(asked)]))
