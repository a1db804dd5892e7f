"""Records of the journal: of a run that begins, and of what a worker answered.

This is the one place that says what no time and an unstable time are.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ckh.bench.timing import UNSTABLE_SPREAD, complaint, summarize
from ckh.data.journal import ResultRow, RunRecord
from ckh.schema import Status
from ckh.version import __version__

if TYPE_CHECKING:
    from ckh.bench.compile import Built
    from ckh.bench.device import DeviceIdentity
    from ckh.bench.protocol import Reply
    from ckh.data.settings import Settings

NS_PER_MS = 1e6
_MIN_SAMPLES_FOR_SPREAD = 3


def new_record(identity: DeviceIdentity, settings: Settings, pairs: int | None = None) -> RunRecord:
    """The record of a run that begins now, of a plan of so many pairs."""
    now = datetime.now(timezone.utc)
    return RunRecord(
        run_id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        ckh_version=__version__,
        started=now.isoformat(timespec="seconds"),
        device_kind=identity.kind,
        arch=identity.arch,
        device=identity.name,
        clock_mhz=identity.clock_mhz,
        hardware=identity.hardware,
        compiler=identity.compiler,
        flags=identity.flags,
        pairs=pairs,
        **asdict(settings),
    )


def with_times(reply: Reply) -> Reply:
    """The reply; if it is OK but has times that cannot be, a launch error with the reason."""
    reason = complaint(reply.samples_ns) if reply.status is Status.OK else ""
    return replace(reply, status=Status.LAUNCH_ERROR, message=reason, samples_ns=()) if reason else reply


def result_row(run_id: str, problem: str, kernel: str, reply: Reply, built: Built) -> ResultRow:
    """The row of a (problem, kernel) pair, both by name. One that is OK or unstable has positive, finite times."""
    reply = with_times(reply)
    row = ResultRow(
        run_id=run_id,
        problem=problem,
        kernel=kernel,
        status=reply.status,
        message=reply.message,
        source_hash=built.source_hash,
        time=round(time.time(), 3),
    )
    if reply.status is not Status.OK:
        return row
    timing = summarize(reply.samples_ns)
    is_unstable = len(reply.samples_ns) >= _MIN_SAMPLES_FOR_SPREAD and timing.spread > UNSTABLE_SPREAD
    return replace(
        row,
        status=Status.UNSTABLE if is_unstable else Status.OK,
        message=f"the samples spread by {timing.spread:.1%}" if is_unstable else "",
        latency_ms=timing.median_ns / NS_PER_MS,
        latency_min_ms=timing.min_ns / NS_PER_MS,
        spread=round(timing.spread, 6),
        samples_ns=reply.samples_ns,
        loops=reply.loops,
    )
