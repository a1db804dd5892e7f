"""When a run should stop before it is complete: on a signal, or because its time is used up."""

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
    GAIN = "gain"  # what a minute is expected to bring is less than was wanted


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Asked all the time whether to stop: `stop()`. As a context manager it takes over SIGINT and SIGTERM.

    A second signal raises KeyboardInterrupt, for somebody in a hurry.

    Args:
        budget_s: seconds from now until it says stop; None: no limit.
    """

    def __init__(self, budget_s: float | None = None) -> None:
        self._end = None if budget_s is None else time.monotonic() + budget_s
        self._signalled = False
        self._previous: list[tuple[signal.Signals, object]] = []

    def __call__(self) -> bool:
        """True if to stop now."""
        return self.reason is not StopReason.COMPLETE

    @property
    def reason(self) -> StopReason:
        """Why to stop; COMPLETE while there is no reason to."""
        if self._signalled:
            return StopReason.INTERRUPTED
        if self._end is not None and time.monotonic() >= self._end:
            return StopReason.BUDGET
        return StopReason.COMPLETE

    def __enter__(self) -> Stop:  # noqa: PYI034 - Self is not in Python 3.10
        """Take over the signals."""
        self._previous = [(number, signal.signal(number, self._on_signal)) for number in _SIGNALS]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give the signals back."""
        for number, handler in self._previous:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._signalled:
            raise KeyboardInterrupt
        self._signalled = True
