"""Common requirements on strategies, and their advantage over random search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.search_replay import Recording, replay
from ckh.errors import DataError, UsageError
from ckh.search.run import SearchResult, run
from ckh.search.strategies import DEFAULT_STRATEGY, STRATEGIES, make_strategy
from ckh.search.strategies import surrogate as surrogate_module
from ckh.search.strategy_space import Space
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

every_strategy = pytest.mark.parametrize("name", sorted(STRATEGIES))


def _search(
    name: str, recording: Recording, budget: int, seed: int = 0, prior: NDArray[np.float64] | None = None
) -> SearchResult:
    def evaluate(index: int) -> float | None:
        return None if np.isnan(recording.times_ms[index]) else float(recording.times_ms[index])

    return run(make_strategy(name, recording.space, seed, prior), evaluate, budget)


def _prior(recording: Recording) -> NDArray[np.float64]:
    """A good model's scores: the speed with noise, also for failing kernels."""
    noise = np.random.default_rng(7).normal(0, 0.3, len(recording.space))
    return np.asarray(noise - np.log(np.nan_to_num(recording.times_ms, nan=5.0)))


@pytest.mark.slow
@every_strategy
@pytest.mark.parametrize("has_prior", [False, True])
def test_proposals_are_legal_distinct_and_as_many_as_allowed(name: str, synthetic: Recording, has_prior: bool) -> None:
    """A budget of ninety gives ninety different configurations of the space, failures among them."""
    result = _search(name, synthetic, 90, prior=_prior(synthetic) if has_prior else None)
    indices = [step.index for step in result.trace]
    assert len(indices) == len(set(indices)) == 90
    assert all(0 <= index < len(synthetic.space) for index in indices)


@pytest.mark.slow
@every_strategy
@pytest.mark.parametrize("has_prior", [False, True])
def test_proposals_depend_on_the_seed(name: str, synthetic: Recording, has_prior: bool) -> None:
    """The same seed asks for the same configurations, another seed for others."""
    prior = _prior(synthetic) if has_prior else None
    first, again, other = (_search(name, synthetic, 60, seed, prior) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@every_strategy
@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_a_large_budget_searches_the_whole_space(name: str, size: int) -> None:
    """A budget beyond the space measures everything once, the optimum among it, and then ends."""
    times = np.random.default_rng(5).random(size) + 0.1
    recording = Recording(Space(("tile", "kind"), (np.arange(size) // 2, np.arange(size) % 2)), times)
    result = _search(name, recording, 1000)
    assert sorted(step.index for step in result.trace) == list(range(size))
    assert result.best is not None
    assert result.best.index == int(np.argmin(times))


@every_strategy
def test_a_space_of_failures_is_searched_completely(name: str) -> None:
    """There is no best configuration, and every one was tried."""
    recording = Recording(Space(("tile",), (np.arange(30),)), np.full(30, np.nan))
    result = _search(name, recording, 100)
    assert (len(result.trace), result.failures, result.best) == (30, 30, None)


@every_strategy
def test_upcoming_proposals_are_announced(name: str, synthetic: Recording) -> None:
    """Peeking changes no proposal; announced ones are new and distinct, and mostly follow soon."""
    strategy = make_strategy(name, synthetic.space, 3)
    told: list[list[int]] = []
    asked: list[int] = []
    for _ in range(60):
        index = strategy.ask()
        asked.append(index)
        told.append(strategy.ahead(8))
        time_ms = synthetic.times_ms[index]
        strategy.tell(index, None if np.isnan(time_ms) else float(time_ms))
    assert asked == [step.index for step in _search(name, synthetic, 60, 3).trace]
    for place, some in enumerate(told):
        assert len(set(some)) == len(some) <= 8
        assert not set(some) & set(asked[: place + 1])
    hits = sum(following in some for following, some in zip(asked[1:], told[:-1], strict=True))
    assert hits >= {"random": 59, "surrogate": 30, "de": 15}[name]
    assert told[0][0] == asked[1]


@every_strategy
def test_ask_and_tell_alternate(name: str) -> None:
    """A second question, an answer to no question and an impossible time are refused."""
    strategy = make_strategy(name, Space(("tile",), (np.arange(9),)))
    index = strategy.ask()
    with pytest.raises(ValueError, match="before requesting"):
        strategy.ask()
    with pytest.raises(ValueError, match="not the last"):
        strategy.tell(index + 1, 1.0)
    with pytest.raises(ValueError, match="positive"):
        strategy.tell(index, 0.0)
    strategy.tell(index, None)
    with pytest.raises(ValueError, match="not the last"):
        strategy.tell(index, 1.0)


def test_an_exhausted_space_proposes_nothing() -> None:
    """Asking an exhausted strategy is an error."""
    strategy = make_strategy("random", Space(("tile",), ([4],)))
    strategy.tell(strategy.ask(), 1.0)
    with pytest.raises(ValueError, match="every configuration"):
        strategy.ask()


def test_unknown_strategies_and_wrong_priors_are_refused(synthetic: Recording) -> None:
    """The error lists the strategies; a prior needs a finite score for each configuration."""
    with pytest.raises(UsageError) as error:
        make_strategy("annealing", synthetic.space)
    assert "surrogate" in error.value.hint
    for prior in (np.zeros(3), np.full(len(synthetic.space), np.nan)):
        with expect_refusal(DataError, "bad-column"):
            make_strategy("random", synthetic.space, prior=prior)


@pytest.mark.parametrize(("name", "at_60", "at_150"), [("surrogate", 0.95, 0.99), ("de", 0.5, 0.8)])
def test_strategies_beat_random(name: str, at_60: float, at_150: float, synthetic: Recording) -> None:
    """On a structured function the median reaches the stated share of the optimum, and random order does not."""
    result = replay(synthetic, 150, range(9), name).summary((60, 150))
    random = replay(synthetic, 150, range(9), "random").summary((60, 150))
    assert result[0] >= at_60
    assert result[1] >= at_150
    assert result[0] > random[0]
    assert result[1] > random[1]


@every_strategy
def test_a_good_prior_helps(name: str, synthetic: Recording) -> None:
    """With a model's scores a search is better after twenty measurements than without."""
    with_prior = replay(synthetic, 20, range(9), name, prior=_prior(synthetic)).summary((20,))
    without = replay(synthetic, 20, range(9), name).summary((20,))
    assert with_prior > without


@pytest.mark.slow
def test_a_useless_prior_does_little_harm(synthetic: Recording) -> None:
    """Random scores leave the default strategy near the optimum after 150 measurements."""
    prior = np.random.default_rng(0).random(len(synthetic.space))
    assert replay(synthetic, 150, range(5), prior=prior).summary((150,))[0] >= 0.95


def test_a_failure_costs_a_measurement(synthetic: Recording) -> None:
    """The trace holds failed configurations with no time, and they count towards the budget."""
    result = _search("random", synthetic, 200)
    failed = [step for step in result.trace if np.isnan(synthetic.times_ms[step.index])]
    assert result.failures == len(failed) > 0
    assert all(step.time_ms is None for step in failed)
    assert len(result.trace) == 200


@pytest.mark.slow
def test_the_default_learns_to_avoid_failures(synthetic: Recording) -> None:
    """If one of three pipelines never works, the default strategy soon avoids it, and finds the best of the rest."""
    times = synthetic.times_ms.copy()
    times[synthetic.space.codes[:, 4] == 0] = np.nan
    recording = Recording(synthetic.space, times)
    result = _search(DEFAULT_STRATEGY, recording, 150)
    assert result.failures < 0.6 * _search("random", recording, 150).failures
    assert result.best is not None
    assert recording.optimum_ms / (result.best.time_ms or np.inf) >= 0.95


def test_large_spaces_and_long_searches_stay_bounded(synthetic: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """With subsets of candidates and observations, the optimum is still found."""
    monkeypatch.setattr(surrogate_module, "_MAX_POOL", 300)
    monkeypatch.setattr(surrogate_module, "_MAX_OBSERVED", 80)
    result = _search(DEFAULT_STRATEGY, synthetic, 250)
    assert len({step.index for step in result.trace}) == 250
    assert result.best is not None
    assert synthetic.optimum_ms / (result.best.time_ms or np.inf) >= 0.95


@every_strategy
@pytest.mark.parametrize("has_prior", [False, True])
def test_starts_are_measured_first(name: str, synthetic: Recording, has_prior: bool) -> None:
    """Start configurations come first, once, in order, however many there are."""
    prior = _prior(synthetic) if has_prior else None
    for starts in ([17, 3], list(range(100, 70, -1))):
        result = run(make_strategy(name, synthetic.space, 0, prior, starts), lambda _: 1.0, 60)
        asked = [step.index for step in result.trace]
        assert asked[: len(starts)] == starts
        assert len(set(asked)) == 60
