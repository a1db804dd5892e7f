"""Search loop: request a configuration, measure it, report its time, until all evaluations are used up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.search.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement: its time, None if the configuration failed, and the best time so far, None before the first."""

    index: int
    time_ms: float | None
    best_ms: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The measurements of a search, in order."""

    trace: tuple[Step, ...]

    @property
    def best(self) -> Step | None:
        """Step with the fastest configuration, None if all failed."""
        measured = [step for step in self.trace if step.time_ms is not None]
        return min(measured, key=lambda step: step.time_ms or 0.0, default=None)

    @property
    def failures(self) -> int:
        """Number of failed configurations."""
        return sum(step.time_ms is None for step in self.trace)


class StoppedError(Exception):
    """Raised by `evaluate` to stop the search: the measurement was stopped before there was a result."""


def _never() -> bool:
    return False


def run(
    strategy: Strategy,
    evaluate: Callable[[int], float | None],
    evaluations: int,
    should_stop: Callable[[], bool] = _never,
) -> SearchResult:
    """Measure the configurations that a strategy proposes."""
    trace: list[Step] = []
    best: float | None = None
    while len(trace) < evaluations and not strategy.is_exhausted and not should_stop():
        index = strategy.ask()
        try:
            time_ms = evaluate(index)
        except StoppedError:
            break
        strategy.tell(index, time_ms)
        if time_ms is not None and (best is None or time_ms < best):
            best = time_ms
        trace.append(Step(index, time_ms, best))
    return SearchResult(tuple(trace))
