"""What is measured again, and what is made of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ckh.assess.oracle import Contest, contests, measured_again
from ckh.ops.grouped_conv.names import kernel_name
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.learn.conftest import build, kernels

A, B, C = kernels()[:3]
NAME_A, NAME_B, NAME_C = map(kernel_name, (A, B, C))
ONE = ConvProblem(Direction.FORWARD, 1, 16, 16, 1, 8, 8, 3, 3)
TWO = replace(ONE, n=2)


def test_the_oracle_comes_first_then_the_choices() -> None:
    """Rows of problems may alternate; a choice that is the oracle's is named twice, a failure is never the oracle."""
    data = build([(ONE, A, 3), (TWO, A, 1), (ONE, B, 1), (TWO, B, 2), (ONE, C, 2), (TWO, C, 3)], failed=[2])
    scores = np.array([1.0, 5.0, 3.0, 9.0, 2.0, 4.0])
    found = contests(data, scores, 2)
    assert found == [
        Contest(ONE.canonical(), (NAME_C, NAME_B, NAME_C)),
        Contest(TWO.canonical(), (NAME_A, NAME_B, NAME_A)),
    ]


def test_more_choices_than_kernels_are_all() -> None:
    """A problem of two kernels has two choices."""
    found = contests(build([(ONE, A, 3), (ONE, B, 1)]), np.array([1.0, 0.0]), 10)
    assert found == [Contest(ONE.canonical(), (NAME_B, NAME_A, NAME_B))]


def test_efficiencies_of_what_was_measured_again() -> None:
    """Medians count, and the best of all is 1: here the second choice beats the oracle of another day."""
    again = measured_again(Contest("p", ("o", "x", "y")), [[5.0, 4.0, 90.0], [10.0, 10.0], [2.0, 1.0, 3.0]])
    assert again.times_ns == (5.0, 10.0, 2.0)
    assert (again.oracle_efficiency, again.first_efficiency, again.top_efficiency) == pytest.approx((0.4, 0.2, 1.0))


def test_a_choice_that_fails_counts_nothing() -> None:
    """Without samples there is no time and an efficiency of 0; the others are judged among themselves."""
    again = measured_again(Contest("p", ("o", "x", "y")), [[4.0], [], [8.0]])
    assert again.times_ns == (4.0, None, 8.0)
    assert (again.oracle_efficiency, again.first_efficiency, again.top_efficiency) == (1.0, 0.0, 0.5)
    no_oracle = measured_again(Contest("p", ("o", "x")), [[], [8.0]])
    assert (no_oracle.oracle_efficiency, no_oracle.first_efficiency) == (0.0, 1.0)
    nothing = measured_again(Contest("p", ("o", "x")), [[], []])
    assert (nothing.oracle_efficiency, nothing.first_efficiency, nothing.top_efficiency) == (0.0, 0.0, 0.0)
    assert not math.isnan(nothing.top_efficiency)
