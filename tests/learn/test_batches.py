"""Scores of kernels by index: one pool for many problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.learn.answers.batches import PooledScores
from ckh.learn.models.artifact import load_model
from tests.learn.conftest import kernels, problems, saved

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pooled_scores_equal_separate_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty problems with different kernels get bit-identical scores from a few larger pools."""
    random, pool = np.random.default_rng(0), kernels()
    requested = [problems()[number] for number in random.integers(0, 12, 40)]
    model = load_model(saved(tmp_path / "model"))
    own = [np.flatnonzero(random.random(len(pool)) < 0.7) for _ in requested]
    expected = [
        model.score_pool([problem], tuple(pool[number] for number in numbers), tflops=False)[0][0]
        for problem, numbers in zip(requested, own, strict=True)
    ]
    pools = []
    score_pool = model.score_pool

    def counted(some: Any, scored: Any, *, tflops: bool) -> Any:
        pools.append(scored)
        return score_pool(some, scored, tflops=tflops)

    monkeypatch.setattr(model, "score_pool", counted)
    scores = PooledScores(model, pool)
    for problem, numbers, values in zip(requested, own, expected, strict=True):
        np.testing.assert_array_equal(scores(problem, numbers), values)
    assert len({id(scored) for scored in pools}) <= 10
    assert set(pools[-1]) == set(pool)
