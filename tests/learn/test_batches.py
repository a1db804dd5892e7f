"""Scores of kernels by index: one pool for many problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.learn.answers.batches import PooledScores
from ckh.learn.models.artifact import find_model, wanted_for
from ckh.ops import operation_of_problem
from ckh.ops.gemm_universal.problem import GemmProblem


@pytest.mark.slow
@pytest.mark.usefixtures("known_host")
def test_pooled_scores_equal_separate_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty GEMMs with different kernels get bit-identical scores from a few larger pools."""
    random = np.random.default_rng(0)
    problems = [GemmProblem(m, n, k) for m, n, k in random.integers(1, 3000, (40, 3)).tolist()]
    model = find_model(wanted_for(problems[0], "host"))
    kernels = operation_of_problem(problems[0]).kernels.candidates(problems[0], load_arch("host"), model.path).kernels
    own = [np.flatnonzero(random.random(len(kernels)) < 0.7) for _ in problems]
    pool_of = [tuple(kernels[number] for number in numbers) for numbers in own]
    expected = [
        model.score_pool([problem], some, tflops=False)[0][0] for problem, some in zip(problems, pool_of, strict=True)
    ]
    pools = []
    score_pool = model.score_pool

    def counted(problems: Any, pool: Any, *, tflops: bool) -> Any:
        pools.append(pool)
        return score_pool(problems, pool, tflops=tflops)

    monkeypatch.setattr(model, "score_pool", counted)
    scores = PooledScores(model, kernels)
    for problem, numbers, values in zip(problems, own, expected, strict=True):
        np.testing.assert_array_equal(scores(problem, numbers), values)
    assert len({id(pool) for pool in pools}) <= 10
    assert set(pools[-1]) == set(kernels)
