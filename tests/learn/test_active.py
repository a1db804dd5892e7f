"""Selection of the next measurements: pending problems, devices, useful kernels; and the learning curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.learn.judging.outlook import LearningCurve
from ckh.learn.selection import LEADERS, PairChooser, Shots, by_worth

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHOTS = Shots()
PLACES = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
KERNELS = [np.arange(start, start + 40) for start in (0, 0, 0, 20, 20, 20)]


def large_first(_problem: int, kernels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores that prefer kernels with large indices."""
    return kernels.astype(np.float64)


def test_concurrent_workers_get_different_problems() -> None:
    """Pending problems count as measured: the second worker gets a problem of the other group."""
    chooser = PairChooser(by_worth(PLACES), KERNELS, large_first)
    first, second = chooser.next("a"), chooser.next("b")
    assert first is not None
    assert second is not None
    assert {first.problem // 3, second.problem // 3} == {0, 1}


def test_first_and_other_kernels_are_selected() -> None:
    """The first useful kernels, and others of the problem, without duplicates."""
    chooser = PairChooser(by_worth(PLACES), KERNELS, large_first)
    chosen = chooser.next("a")
    assert chosen is not None
    assert len(set(chosen.kernels.tolist())) == SHOTS.best + SHOTS.others
    assert chosen.kernels[: SHOTS.best].tolist() == sorted(KERNELS[chosen.problem])[: -1 - SHOTS.best : -1]


def test_a_problem_is_continued_only_on_its_device() -> None:
    """Times of two devices are not compared; in the end every pair was selected once."""
    chooser = PairChooser(by_worth(PLACES), KERNELS, large_first)
    node_of: dict[int, str] = {}
    seen: set[tuple[int, int]] = set()
    for turn in range(1000):
        node = "ab"[turn % 2]
        chosen = chooser.next(node)
        if chosen is None:
            continue
        assert node_of.setdefault(chosen.problem, node) == node
        pairs = {(chosen.problem, kernel) for kernel in chosen.kernels.tolist()}
        assert not pairs & seen
        seen |= pairs
        chooser.done(chosen, node)
        assert turn < 6 or chooser.next("c") is None
    assert len(seen) == 6 * 40


def test_other_scores_make_other_kernels_useful() -> None:
    """Useful kernels include those of new scores and all earlier ones."""
    chooser = PairChooser(by_worth(PLACES), KERNELS, large_first)
    before = set(chooser.useful)
    useful = chooser.useful_by(lambda _problem, kernels: -kernels.astype(np.float64))
    assert useful >= before
    chooser.learn(lambda _problem, kernels: -kernels.astype(np.float64), useful)
    chosen = chooser.next("a")
    assert chosen is not None
    assert chosen.kernels[0] == min(KERNELS[chosen.problem])


def test_with_a_model_of_the_results_only_leaders_are_selected() -> None:
    """For a problem scored by a model of the results only the leaders are selected, for others more."""
    chooser = PairChooser(by_worth(PLACES), KERNELS, large_first)
    chooser.learn(large_first, chooser.useful, {0, 1, 2})
    for chosen in (chooser.next("a"), chooser.next("b")):
        assert chosen is not None
        first = sorted(KERNELS[chosen.problem])[::-1]
        if chosen.problem in {0, 1, 2}:
            assert chosen.kernels.tolist() == first[: LEADERS.best]
        else:
            assert len(chosen.kernels) == SHOTS.best + SHOTS.others


def test_kernels_without_scores_are_drawn() -> None:
    """Without scores the same number is selected, at random."""
    chosen = PairChooser(by_worth(PLACES), KERNELS, lambda _problem, _kernels: None).next("a")
    assert chosen is not None
    assert len(chosen.kernels) == SHOTS.best + SHOTS.others


def test_a_power_law_is_extrapolated() -> None:
    """A loss of 10 %, 5 %, 2.5 % with 1, 2, 4 parts is 1.25 % with twice as many pairs, whatever problems are drawn."""
    curve = LearningCurve(np.array([100.0, 200.0, 400.0]), np.tile([[0.9], [0.95], [0.975]], (1, 20)))
    assert curve.now().value == pytest.approx(0.975)
    gain = curve.gain(1.0)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.0125, 0.0125, 0.0125))
    assert curve.gain(0.0).value == 0


def test_a_flat_learning_curve_has_no_gain() -> None:
    """The expected gain of more pairs is zero, not negative; the interval is over problems."""
    random = np.random.default_rng(0)
    flat = LearningCurve(np.array([100.0, 200.0, 400.0]), random.uniform(0.8, 1.0, (3, 30)).cumsum(axis=0).clip(0, 0.9))
    falls = LearningCurve(np.array([100.0, 200.0, 400.0]), np.array([[0.9] * 9, [0.8] * 9, [0.7] * 9]))
    assert falls.gain(3.0).value == 0
    estimate = flat.gain(3.0)
    assert 0 <= estimate.low <= estimate.value <= estimate.high
