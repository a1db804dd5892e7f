"""Limits of building and measuring kernels, and conditions to stop a run before it is complete."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.declared import Declared, declared
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from types import FrameType, TracebackType


DEFAULT_COMPILE_TIMEOUT_S = 300.0
DEFAULT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class BenchLimits:
    """Timeouts in seconds, parallel compilers (None: by cores and memory), and whether impossible times are taken."""

    budget_s: float | None = declared(Declared("Time budget, e.g. 20m.", metavar="TIME"), default=None)
    timeout_s: float = declared(
        Declared(f"Time limit per kernel and problem.  [{DEFAULT_TIMEOUT_S:g}s]", metavar="TIME"),
        default=DEFAULT_TIMEOUT_S,
    )
    jobs: int | None = declared(
        Declared("Parallel compilers.  [by cores and memory]", typed=("--jobs", "-j"), low=1, high=1024), default=None
    )
    compile_timeout_s: float = declared(
        Declared(f"CPU time limit per compiler.  [{DEFAULT_COMPILE_TIMEOUT_S / 60:g}m]", metavar="TIME"),
        default=DEFAULT_COMPILE_TIMEOUT_S,
    )
    no_peak_check: bool = declared(Declared("Use times above the peak rates of their GPU as they are."), default=False)


class StopReason(StrEnum):
    """Why a run ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Stop condition, polled by calling `stop()`. As a context manager it handles SIGINT, SIGTERM and SIGHUP.

    A second signal raises KeyboardInterrupt, to end immediately.
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

    @property
    def left_s(self) -> float | None:
        """Seconds left of the budget; None without one."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def __enter__(self) -> Stop:  # noqa: PYI034 - Self is not in Python 3.10
        """Install the signal handlers."""
        taken = _SIGNALS[: 2 if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else 3]  # ignored by nohup
        self._previous = [(number, signal.signal(number, self._on_signal)) for number in taken]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Restore the signal handlers."""
        for number, handler in self._previous:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._signalled:
            raise KeyboardInterrupt
        self._signalled = True
