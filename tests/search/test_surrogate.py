"""Proposals of the surrogate, and their advantage over random search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.search_replay import Recording, replay
from ckh.errors import DataError
from ckh.search import surrogate
from ckh.search.space import Space
from ckh.search.surrogate import StoppedError, Surrogate
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _search(
    recording: Recording, budget: int, seed: int = 0, prior: NDArray[np.float64] | None = None
) -> dict[int, float | None]:
    def evaluate(index: int) -> float | None:
        return None if np.isnan(recording.times_ms[index]) else float(recording.times_ms[index])

    return Surrogate(recording.space, seed, prior).search(evaluate, budget)


def _failures(times_ms: dict[int, float | None]) -> int:
    return sum(time_ms is None for time_ms in times_ms.values())


def _share_of_optimum(recording: Recording, times_ms: dict[int, float | None]) -> float:
    return recording.optimum_ms / min(time_ms for time_ms in times_ms.values() if time_ms is not None)


def _prior(recording: Recording) -> NDArray[np.float64]:
    """A good model's scores: the speed with noise, also for failing kernels."""
    noise = np.random.default_rng(7).normal(0, 0.3, len(recording.space))
    return np.asarray(noise - np.log(np.nan_to_num(recording.times_ms, nan=5.0)))


@pytest.mark.parametrize("has_prior", [False, True])
def test_a_seed_gives_distinct_legal_proposals(synthetic: Recording, has_prior: bool) -> None:
    """As many as the budget allows, failures among them; another seed gives others."""
    prior = _prior(synthetic) if has_prior else None
    first, again, other = (_search(synthetic, 60, seed, prior) for seed in (3, 3, 4))
    assert list(first.items()) == list(again.items())
    assert list(first) != list(other)
    assert len(first) == 60
    assert all(0 <= index < len(synthetic.space) for index in first)


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_a_large_budget_searches_the_whole_space(size: int) -> None:
    """A budget beyond the space measures everything once, the optimum among it, and then ends."""
    times = np.random.default_rng(5).random(size) + 0.1
    recording = Recording(Space(("tile", "kind"), (np.arange(size) // 2, np.arange(size) % 2)), times)
    result = _search(recording, 1000)
    assert sorted(result) == list(range(size))
    assert _share_of_optimum(recording, result) == 1


def test_a_space_of_failures_is_searched_completely() -> None:
    """There is no best configuration, and every one was tried."""
    recording = Recording(Space(("tile",), (np.arange(30),)), np.full(30, np.nan))
    result = _search(recording, 100)
    assert (len(result), _failures(result)) == (30, 30)


def test_upcoming_proposals_are_announced(synthetic: Recording) -> None:
    """Peeking changes no proposal; announced ones are new and distinct, and mostly follow soon."""
    search = Surrogate(synthetic.space, 3)
    told: list[list[int]] = []
    asked: list[int] = []

    def evaluate(index: int) -> float | None:
        asked.append(index)
        told.append(search.ahead(8))
        time_ms = synthetic.times_ms[index]
        return None if np.isnan(time_ms) else float(time_ms)

    search.search(evaluate, 60)
    assert asked == list(_search(synthetic, 60, 3))
    for place, some in enumerate(told):
        assert len(set(some)) == len(some) <= 8
        assert not set(some) & set(asked[: place + 1])
    hits = sum(following in some for following, some in zip(asked[1:], told[:-1], strict=True))
    assert hits >= 30
    assert told[0][0] == asked[1]


def test_wrong_priors_are_refused(synthetic: Recording) -> None:
    """A prior needs a finite score for each configuration."""
    for prior in (np.zeros(3), np.full(len(synthetic.space), np.nan)):
        with expect_refusal(DataError, "bad-column"):
            Surrogate(synthetic.space, prior=prior)


def test_the_surrogate_beats_random_order(synthetic: Recording) -> None:
    """On a structured function the median reaches the stated shares of the optimum, and random order does not."""
    at_60, at_150 = replay(synthetic, 150, range(9)).summary((60, 150))
    assert at_60 >= 0.95
    assert at_150 >= 0.99
    times = np.nan_to_num(synthetic.times_ms, nan=np.inf)
    orders = [np.random.default_rng(seed).permutation(times) for seed in range(200)]
    random_60, random_150 = (
        np.median([synthetic.optimum_ms / order[:count].min() for order in orders]) for count in (60, 150)
    )
    assert at_60 > random_60
    assert at_150 > random_150


def test_a_good_prior_helps(synthetic: Recording) -> None:
    """With a model's scores a search is better after twenty measurements than without."""
    with_prior = replay(synthetic, 20, range(9), prior=_prior(synthetic)).summary((20,))
    without = replay(synthetic, 20, range(9)).summary((20,))
    assert with_prior > without


@pytest.mark.slow
def test_a_useless_prior_does_little_harm(synthetic: Recording) -> None:
    """Random scores leave the search near the optimum after 150 measurements."""
    prior = np.random.default_rng(0).random(len(synthetic.space))
    assert replay(synthetic, 150, range(5), prior=prior).summary((150,))[0] >= 0.95


def test_a_failure_costs_a_measurement(synthetic: Recording) -> None:
    """Failed configurations have no time, and count towards the budget."""
    result = _search(synthetic, 200)
    assert len(result) == 200
    assert {index for index, time_ms in result.items() if time_ms is None} == set(
        np.flatnonzero(np.isnan(synthetic.times_ms)).tolist()
    ) & set(result)
    assert _failures(result) > 0


def test_a_search_stops_on_request() -> None:
    """No measurement is made after the stop, a stopped one has no result, and the next search goes on."""
    measured: list[int] = []

    def evaluate(index: int) -> float:
        if len(measured) == 5:
            raise StoppedError
        measured.append(index)
        return 1.0 + index

    search = Surrogate(Space(("tile",), (np.arange(10),)))
    assert search.search(evaluate, 0) == {}
    first = search.search(evaluate, 8, lambda: len(measured) == 3)
    assert list(first) == measured
    assert len(first) == 3
    assert list(search.search(evaluate, 100)) == measured[3:5]


@pytest.mark.slow
def test_the_default_learns_to_avoid_failures(synthetic: Recording) -> None:
    """If one of three pipelines never works, the search soon avoids it, and finds the best of the rest."""
    times = synthetic.times_ms.copy()
    times[synthetic.space.codes[:, 4] == 0] = np.nan
    recording = Recording(synthetic.space, times)
    result = _search(recording, 150)
    assert _failures(result) < 0.6 * 150 * np.isnan(times).mean()
    assert _share_of_optimum(recording, result) >= 0.95


def test_large_spaces_and_long_searches_stay_bounded(synthetic: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """With subsets of candidates and observations, the optimum is still found."""
    monkeypatch.setattr(surrogate, "_MAX_POOL", 300)
    monkeypatch.setattr(surrogate, "_MAX_OBSERVED", 80)
    result = _search(synthetic, 250)
    assert len(result) == 250
    assert _share_of_optimum(synthetic, result) >= 0.95


@pytest.mark.parametrize("has_prior", [False, True])
def test_starts_are_measured_first(synthetic: Recording, has_prior: bool) -> None:
    """Start configurations come first, once, in order, however many there are."""
    prior = _prior(synthetic) if has_prior else None
    for starts in ([17, 3], list(range(100, 70, -1))):
        asked = list(Surrogate(synthetic.space, 0, prior, starts).search(lambda _: 1.0, 60))
        assert asked[: len(starts)] == starts
        assert len(asked) == 60
