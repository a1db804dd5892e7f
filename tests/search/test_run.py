"""The search loop: budget, stop, and trace."""

from __future__ import annotations

import numpy as np

from ckh.search.run import Step, StoppedError, run
from ckh.search.strategies import make_strategy
from ckh.search.strategy_space import Space


def test_the_trace_has_the_best_so_far() -> None:
    """The best time is None until a kernel works, and never rises."""
    answers: list[float | None] = [None, 4.0, 5.0, None, 3.0]
    told = iter(answers)
    strategy = make_strategy("random", Space(("tile",), (np.arange(10),)))
    result = run(strategy, lambda _: next(told), 5)
    assert [step.time_ms for step in result.trace] == answers
    assert [step.best_ms for step in result.trace] == [None, 4.0, 4.0, 4.0, 3.0]
    assert result.best == result.trace[4]
    assert result.failures == 2


def test_a_search_stops_on_request() -> None:
    """No measurement is made after the stop, and the next run continues with the same strategy."""
    measured: list[int] = []

    def evaluate(index: int) -> float:
        measured.append(index)
        return 1.0 + index

    strategy = make_strategy("random", Space(("tile",), (np.arange(10),)))
    first = run(strategy, evaluate, 8, lambda: len(measured) == 3)
    assert [step.index for step in first.trace] == measured
    rest = run(strategy, evaluate, 100)
    assert len(first.trace) == 3
    assert len(rest.trace) == 7
    assert sorted(measured) == list(range(10))


def test_a_zero_budget_measures_nothing() -> None:
    """A budget of zero gives an empty result without a best."""
    result = run(make_strategy("random", Space(("tile",), ([1, 2],))), lambda _: 1.0, 0)
    assert (result.trace, result.best, result.failures) == ((), None, 0)
    assert Step(0, None, None).best_ms is None


def test_a_stopped_measurement_ends_the_search() -> None:
    """Earlier measurements are kept, and the stopped one is not in the trace."""
    told = iter([3.0, 2.0])

    def evaluate(_index: int) -> float:
        try:
            return next(told)
        except StopIteration:
            raise StoppedError from None

    result = run(make_strategy("random", Space(("tile",), (np.arange(10),))), evaluate, 8)
    assert [step.time_ms for step in result.trace] == [3.0, 2.0]
