"""The analytic estimate as a part of a model's scores: of all kernels, of those unknown to its trees, or of ties."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from ckh.archs import load_arch
from ckh.kernels.compiled import compiled_here
from ckh.learn.analytic.completed import JUDGED, Completion, filled, tie_breaks, vetoed
from ckh.learn.analytic.estimate import (
    ESTIMATE_FEATURE,
    PROBLEM_INPUTS,
    KernelShapes,
    estimate_engine,
    estimated_us,
    kernel_inputs,
    minus_us,
    problem_inputs,
)
from ckh.learn.models.scoring import ModelInputs
from ckh.ops import operation
from ckh.ranking.evaluator import best_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import EstimatedProduct, Kernel, Problem
    from ckh.schema import Resources


def has_estimate(wanted: Wanted) -> bool:
    """True if the analytic estimate can rank these kernels: they have tiles, and the GPU's peak rates are known."""
    problems = operation(wanted.op_type).problems
    has_sizes = problems.tiled is not None or problems.products is not None
    return has_sizes and load_arch(wanted.arch).peaks is not None


class EstimateScores:
    """Scores of kernels by the analytic estimate; all are 0 where there is none (`has_estimate`)."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._op, self._arch = operation(wanted.op_type), wanted.gpu
        self.can_score, problems = has_estimate(wanted), self._op.problems
        self._tiled, self._products = (problems.tiled, problems.products) if self.can_score else (None, None)
        self.compiled = compiled_here(wanted.arch, wanted.op_type) if self._tiled else {}  # reports by kernel name
        # The last scored pool, and its shapes, which take longer to compute than the estimate.
        self._pool: Sequence[Kernel] | None = None
        self._shapes: dict[str, NDArray[np.float64]] = {}
        self._shape_of = np.empty(0, np.intp)

    def scores(self, problems: Sequence[Problem], pool: Sequence[Kernel]) -> NDArray[np.float64]:
        """Negative estimated times in microseconds, shape (problems, kernels)."""
        by_shape = self._by_shape(problems, pool)
        return by_shape[:, self._shape_of]

    def _by_shape(self, problems: Sequence[Problem], pool: Sequence[Kernel]) -> NDArray[np.float64]:
        """The scores of the pool's distinct shapes, shape (problems, shapes)."""
        if self._products is not None:
            self._shape_of = np.arange(len(pool))
            return np.array([self._summed(self._products(problem), pool) for problem in problems])
        if self._tiled is None:
            self._shape_of = np.zeros(len(pool), np.intp)
            return np.zeros((len(problems), 1))
        if self._pool is not pool:
            shapes, every = KernelShapes.of(pool), np.arange(len(pool))
            distinct, self._shape_of = (shapes, every) if self.compiled else shapes.distinct()
            self._shapes = kernel_inputs(distinct, self.wanted.dtype, self._arch, self._compiled(pool))
            self._pool = pool
        return minus_us(problems, [self._tiled(problem) for problem in problems], self._shapes, self._arch)

    def _summed(self, products: Sequence[EstimatedProduct | None], pool: Sequence[Kernel]) -> NDArray[np.float64]:
        """The scores of kernels for several products, shape (kernels,)."""
        parts, gpu = (part for part in products if part is not None), self._arch
        times = (estimated_us(part, part.sizes, part.kernels(pool), gpu.sized(part.num_cus)) for part in parts)
        return np.asarray(-sum(times))

    def completed(
        self,
        score: NDArray[np.float64],
        problems: Sequence[Problem],
        pool: Sequence[Kernel],
        how: Completion,
        is_known: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Fill in the scores of unknown kernels, or break ties, shape (problems, kernels)."""
        if how is Completion.FILLED and is_known.all():
            return score
        if how is Completion.FILLED:
            rows = zip(score.tolist(), self.scores(problems, pool).tolist(), strict=True)
            return np.array([filled(own, minus_us, is_known.tolist()) for own, minus_us in rows])
        by_shape: list[list[float]] = self._by_shape(problems, pool).tolist()
        breaks: NDArray[np.float64] = np.array([list(map(tie_breaks(minus_us), minus_us)) for minus_us in by_shape])
        return np.asarray(score + breaks[:, self._shape_of])

    def veto(
        self,
        score: NDArray[np.float64],
        problems: Sequence[Problem],
        pool: Sequence[Kernel],
        chosen: NDArray[np.intp],
    ) -> None:
        """Put the first of the chosen kernels in the order of `vetoed`, in the scores (problems, kernels) of a pool."""
        first = chosen[best_first(score[:, chosen], JUDGED)]
        for own, estimated, places in zip(score, self._by_shape(problems, pool), first, strict=True):
            own[places] = vetoed(own[places].tolist(), estimated[self._shape_of[places]].tolist())

    @cached_property
    def inputs(self) -> ModelInputs:
        """The estimate as the only feature of a model."""
        assert self._tiled is not None
        tiled, op = self._tiled, self._op
        return ModelInputs(
            engine=estimate_engine(op.name, self._arch),
            names=(ESTIMATE_FEATURE,),
            of_kernels=lambda pool, _: kernel_inputs(
                KernelShapes.of(pool), self.wanted.dtype, self._arch, self._compiled(pool)
            ),
            of_problem=lambda problem: {
                **op.problems.features([problem]),
                **problem_inputs(problem, tiled(problem)),
            },
            further_sizes=PROBLEM_INPUTS,
        )

    def _compiled(self, pool: Sequence[Kernel]) -> list[Resources | None]:
        """Compiler reports of each kernel; empty if there are none."""
        name = self._op.kernels.name
        return [self.compiled.get(name(kernel)) for kernel in pool] if self.compiled else []


class RandomScores(EstimateScores):
    """Scores drawn at random, by the problem as seed: for the CPU, for whose kernels there is no estimate."""

    def scores(self, problems: Sequence[Problem], pool: Sequence[Kernel]) -> NDArray[np.float64]:
        """Random scores, shape (problems, kernels)."""
        seeds = [crc32(problem.canonical().encode()) for problem in problems]
        return np.array([np.random.default_rng(seed).random(len(pool)) for seed in seeds])
