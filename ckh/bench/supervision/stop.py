"""Conditions to stop a run before it is complete: a signal, or the end of its time budget."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class StopReason(StrEnum):
    """Why a run ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"
    GAIN = "gain"  # expected gain per minute below the requested minimum


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Stop condition, polled by calling `stop()`. As a context manager it handles SIGINT and SIGTERM.

    A second signal raises KeyboardInterrupt, to end immediately.

    Args:
        budget_s: time budget in seconds from now; None: no limit.
    """

    def __init__(self, budget_s: float | None = None) -> None:
        self._end = None if budget_s is None else time.monotonic() + budget_s
        self._signalled = False
        self._previous: list[tuple[signal.Signals, object]] = []

    def __call__(self) -> bool:
        """True if the run should stop now."""
        return self.reason is not StopReason.COMPLETE

    @property
    def reason(self) -> StopReason:
        """Reason to stop; COMPLETE while there is none."""
        if self._signalled:
            return StopReason.INTERRUPTED
        if self._end is not None and time.monotonic() >= self._end:
            return StopReason.BUDGET
        return StopReason.COMPLETE

    def __enter__(self) -> Stop:  # noqa: PYI034 - Self is not in Python 3.10
        """Install the signal handlers."""
        self._previous = [(number, signal.signal(number, self._on_signal)) for number in _SIGNALS]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Restore the signal handlers."""
        for number, handler in self._previous:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._signalled:
            raise KeyboardInterrupt
        self._signalled = True
