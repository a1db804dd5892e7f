"""Limits of building and measuring kernels."""

from __future__ import annotations

from dataclasses import dataclass

from ckh.declared import Declared, declared

DEFAULT_COMPILE_TIMEOUT_S = 300.0
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_STOP_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class BenchLimits:
    """Timeouts in seconds, parallel compilers (None: by cores and memory), and leaders per problem.

    `leaders` is the number of kernels remeasured per problem; None: up to 12 within 8 % of the best. `stop_gain` is in
    percentage points of mean efficiency per minute.
    """

    budget_s: float | None = declared(Declared("Time budget, e.g. 20m.", metavar="TIME"), default=None)
    leaders: int | None = declared(
        Declared(
            "Measure the N fastest kernels of each problem again.  [those within 8 %, up to 12]", metavar="N", low=2
        ),
        default=None,
    )
    timeout_s: float = declared(
        Declared(f"Time limit per kernel and problem.  [{DEFAULT_TIMEOUT_S:g}s]", metavar="TIME"),
        default=DEFAULT_TIMEOUT_S,
    )
    jobs: int | None = declared(
        Declared("Parallel compilers.  [by cores and memory]", typed=("--jobs", "-j"), low=1, high=1024), default=None
    )
    compile_timeout_s: float = declared(
        Declared(f"Time limit per compiler.  [{DEFAULT_COMPILE_TIMEOUT_S / 60:g}m]", metavar="TIME"),
        default=DEFAULT_COMPILE_TIMEOUT_S,
    )
    stop_gain: float = declared(
        Declared(
            "--active: stop below this expected gain per minute, in percentage points of mean efficiency.  "
            f"[{DEFAULT_STOP_GAIN:g}]",
            metavar="POINTS",
            low=0.0,
            high=100.0,
        ),
        default=DEFAULT_STOP_GAIN,
    )
