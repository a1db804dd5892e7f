"""Searching with a model alone: its budget, its seed, and that it never ends below the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.learn.answer import answer
from ckh.learn.artifact import load_model
from ckh.problems import ConvProblem, Direction
from ckh.search.kernels import KernelSpace, kernel_space
from ckh.search.objective import as_time, log_speeds
from ckh.search.on_model import ModelSearch, search_model
from ckh.search.strategies import STRATEGIES
from ckh.training import RankObjective
from tests.learn.conftest import HOST, saved

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.learn.artifact import Model
    from ckh.learn.ranked import Ranked

PROBLEM = ConvProblem(Direction.FORWARD, n=2, c=64, k=96, g=1, hi=14, wi=14, y=3, x=3, pad_h=1, pad_w=1)
every_strategy = pytest.mark.parametrize("strategy", sorted(STRATEGIES))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small model of the host's kernels."""
    return load_model(saved(tmp_path_factory.mktemp("models") / "mine"))


@pytest.fixture(scope="module")
def pool(model: Model) -> list[Ranked]:
    """The candidates, best first."""
    return answer(PROBLEM, model).ranked


@pytest.fixture(scope="module")
def space(pool: list[Ranked]) -> KernelSpace:
    """Bases with their own vector widths: all that the model tells apart."""
    return kernel_space(PROBLEM, HOST, [one.kernel for one in pool], 9000)


def search(
    space: KernelSpace, model: Model, pool: list[Ranked], strategy: str, budget: int, seed: int = 0
) -> ModelSearch:
    """A search that tells nobody how far it is."""
    return search_model(space, PROBLEM, model, pool, strategy, seed, budget, lambda _steps, _text: None)


@every_strategy
@pytest.mark.parametrize("budget", [1, 40])
def test_a_search_never_ends_below_the_pool(
    strategy: str, budget: int, space: KernelSpace, model: Model, pool: list[Ranked]
) -> None:
    """With a budget of one it is the pool's best; with more at least as good, and exactly as many were asked about."""
    found = search(space, model, pool, strategy, budget)
    assert found.evaluations == budget == len(found.found) == len({one.kernel for one in found.found})
    assert found.found[0].score >= pool[0].score
    scores = [one.score for one in found.found]
    assert scores == sorted(scores, reverse=True)
    if budget == 1:
        assert found.found[0].kernel == pool[0].kernel


@every_strategy
def test_the_seed_decides(strategy: str, space: KernelSpace, model: Model, pool: list[Ranked]) -> None:
    """The same seed finds the same kernels, another one asks about others."""
    first, again, other = (search(space, model, pool, strategy, 40, seed) for seed in (3, 3, 4))
    assert first.found == again.found
    assert {one.kernel for one in first.found} != {one.kernel for one in other.found}


def test_a_large_budget_asks_about_everything_once(space: KernelSpace, model: Model, pool: list[Ranked]) -> None:
    """The best of all is then the model's best of the whole space, and look-alikes are asked about once."""
    found = search(space, model, pool, "random", 10**6)
    assert found.evaluations == found.distinct < len(space)
    scores = model.predict(PROBLEM, space.kernels, model.spec.rank_by)
    assert found.found[0].score == pytest.approx(scores.max(), rel=1e-12)


@pytest.mark.parametrize("rank", [RankObjective.RELATIVE, RankObjective.TFLOPS])
def test_speeds_have_the_order_of_the_scores(
    rank: RankObjective, tmp_path: Path, space: KernelSpace, pool: list[Ranked]
) -> None:
    """What strategies take for a time falls as the score grows, for models that order by TFLOPS or by a score."""
    model = load_model(saved(tmp_path / "model", rank))
    kernels = space.kernels[:: len(space) // 200]
    scores = model.predict(PROBLEM, kernels, model.spec.rank_by)
    speeds = log_speeds(model, PROBLEM, kernels)
    times = np.array([as_time(speed) for speed in speeds])
    assert (times > 0).all()
    order = np.argsort(scores, kind="stable")
    assert (np.diff(times[order]) <= 0).all()
    assert len(np.unique(times)) == len(np.unique(scores))
    if model.spec.rank_by == "tflops":
        assert np.allclose(1 / times, scores)
